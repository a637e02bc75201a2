package nft

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// FuzzDecode reads any bytes as each answer and event of the kernel: nothing panics, and what is read is no longer than
// the answer.
func FuzzDecode(f *testing.F) {
	for _, kind := range []uint16{unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_NEWSET, unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_NEWGEN} {
		var w wire
		start := w.begin(kind, 0, IPv4)
		w.Text(1, TableName)
		w.Text(2, mapServices)
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
		was := existing{
			chains: map[string]chainShape{}, dropping: map[string]bool{}, rules: map[string]rulesShape{}, sets: map[string]setShape{},
			counts: map[string]int{},
		}
		for m := nlmsg.NewMessages(datagram); m.Next(); {
			was.addTable(m.Attributes())
			was.addChain(m.Attributes())
			was.addRule(m.Attributes())
			was.addSet(m.Attributes())
			decodeElements(m.Attributes(), func(e foundElement) {
				if len(e.key)+len(e.data)+len(e.comment) > len(datagram) {
					t.Fatalf("element %+v from %d bytes", e, len(datagram))
				}
			})
		}
		if n := len(was.chains) + len(was.rules) + len(was.sets); n > len(datagram) {
			t.Fatalf("%d objects from %d bytes", n, len(datagram))
		}
		var w Watcher
		i, _ := w.read(datagram)
		var later Watcher
		j, _ := later.read(datagram)
		i.Merge(j)
		_ = i.String()
	})
}

// strangeKernel has the sets of Verdict, with any elements.
type strangeKernel struct {
	sets map[string]setShape
	rest []byte
}

func (k *strangeKernel) generation() (uint32, error) { return 1, nil }

func (k *strangeKernel) surveySets(Family) (existing, error) {
	return existing{table: true, sameLayout: true, sets: k.sets}, nil
}

// take cuts a value of 0 to 31 bytes off the input.
func (k *strangeKernel) take() []byte {
	if len(k.rest) == 0 {
		return nil
	}
	n := min(int(k.rest[0]%32), len(k.rest)-1)
	value := k.rest[1 : 1+n]
	k.rest = k.rest[1+n:]
	return value
}

func (k *strangeKernel) element() foundElement {
	return foundElement{key: k.take(), data: k.take(), comment: string(k.take())}
}

func (k *strangeKernel) dumpElements(_ Family, _ string, each func(foundElement)) error {
	for n := len(k.take()); n > 0 && len(k.rest) > 0; n-- {
		each(k.element())
	}
	return nil
}

func (k *strangeKernel) lookupRow(_ Family, _ string, keys [][]byte, each func(foundElement)) (int, error) {
	found := 0
	for ; found < len(keys) && len(k.rest) > 0; found++ {
		each(k.element())
	}
	return found, nil
}

func (k *strangeKernel) lookup(Family, string, []byte) (foundElement, bool, error) {
	return k.element(), len(k.rest) > 0, nil
}

// FuzzList lists tables whose elements are any bytes, as another process can write them: nothing panics.
func FuzzList(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x02\x00\x0c\x0a\x60\x00\x01\x06\x00\x00\x00\x00\x50\x00\x00\x04\x00\x00\x00\x02\x05a/b:c"))
	f.Fuzz(func(t *testing.T, elements []byte) {
		k := &strangeKernel{sets: map[string]setShape{}, rest: elements}
		for _, name := range setNames {
			k.sets[name] = setShape{}
		}
		out, err := list(k, []Family{IPv4, IPv6}, nil)
		if err != nil && errors.Is(err, ErrNoTables) {
			t.Fatal(err)
		}
		if len(out.Frontends) > len(elements) {
			t.Fatalf("%d frontends from %d bytes", len(out.Frontends), len(elements))
		}
	})
}
