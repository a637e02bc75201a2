package kernel

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// FuzzDecode reads any bytes as each answer and event of the kernel: nothing panics, and what is read is no longer than
// the answer.
func FuzzDecode(f *testing.F) {
	for _, kind := range []uint16{unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_NEWSET, unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_NEWGEN} {
		var w Wire
		start := w.begin(kind, 0, program.IPv4)
		w.Text(1, program.TableName)
		w.Text(2, program.Services.Name())
		list := w.Nest(3)
		item := w.Nest(unix.NFTA_LIST_ELEM)
		key := w.Nest(unix.NFTA_SET_ELEM_KEY)
		w.Bytes(unix.NFTA_DATA_VALUE, []byte("0123456789abcdef"))
		w.Unnest(key)
		w.Unnest(item)
		w.Unnest(list)
		w.End(start)
		f.Add(w.Buf)
	}
	f.Fuzz(func(t *testing.T, datagram []byte) {
		was := Existing{
			Chains: map[string]program.ChainShape{}, Dropping: map[string]bool{}, Rules: map[string]rule.RulesShape{}, Sets: map[string]program.SetShape{},
			Counts: map[string]int{},
		}
		for m := nlmsg.NewMessages(datagram); m.Next(); {
			was.addTable(m.Attributes())
			was.addChain(m.Attributes())
			was.addRule(m.Attributes())
			was.addSet(m.Attributes())
			decodeElements(m.Attributes(), func(e Found) {
				if len(e.Key)+len(e.Data)+len(e.Comment) > len(datagram) {
					t.Fatalf("element %+v from %d bytes", e, len(datagram))
				}
			})
		}
		if n := len(was.Chains) + len(was.Rules) + len(was.Sets); n > len(datagram) {
			t.Fatalf("%d objects from %d bytes", n, len(datagram))
		}
		var w Watcher
		i, _ := w.read(nlmsg.NewMessages(datagram))
		var later Watcher
		j, _ := later.read(nlmsg.NewMessages(datagram))
		i.Merge(j)
		_ = i.String()
	})
}
