package nft

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestBlame has answers of the kernel that ordinary clashes do not cause.
func TestBlame(t *testing.T) {
	tx := elementsOf(t, kindsExample(), false)
	tx.Do(program.Operation{Kind: program.AddTable, Family: program.IPv6})
	for i := range 2000 {
		tx.For(program.IPv6).Insert(program.Services, tx.Element(strconv.Itoa(i), func(k *program.Builder) {
			k.Addr(netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}))
			k.Proto(tcp)
			k.Port(80)
		}, func(v *program.Builder) { v.Word(uint32(i)) }))
	}
	services := tx.Changes[1][program.Services].Add
	marked := services[len(services)-500]
	var b kernel.Batch
	if err := b.Encode(tx); err != nil {
		t.Fatal(err)
	}
	elements := b.Messages[1]
	second := b.Messages[slices.IndexFunc(b.Messages, func(m kernel.MessageInfo) bool {
		return m.Family == program.IPv6 && m.Set == program.Services && m.Element > 0
	})]
	for name, test := range map[string]struct {
		why  nlmsg.Ack
		want string
	}{
		"the opening message":      {nlmsg.Ack{Seq: b.First}, "the transaction as a whole"},
		"a sequence number unseen": {nlmsg.Ack{Seq: b.Last + 9}, "the transaction as a whole"},
		"an operation":             {nlmsg.Ack{Seq: b.Messages[0].Seq}, `add table ip6 verdict { comment "verdict layout 1"; }`},
		"no offset":                {nlmsg.Ack{Seq: elements.Seq}, "add element ip verdict services"},
		"offset inside an element": {nlmsg.Ack{Seq: elements.Seq, Offset: 101}, "add element ip verdict services"},
		"an element of a second message": {
			nlmsg.Ack{Seq: second.Seq, Offset: uint32(bytes.Index(b.Buf[second.Start:], marked.Key(tx.Arena)) - 3*nlmsg.AttributeHeaderSize)},
			`add element ip6 verdict services { fd00::5dc . tcp . 80 comment "1500" : 0:5dc }`,
		},
		"offset past the message": {nlmsg.Ack{Seq: elements.Seq, Offset: 1 << 30}, "add element ip verdict services"},
	} {
		if got := b.Blame(tx, &test.why); got != test.want {
			t.Errorf("%s: %q, wanted %q", name, got, test.want)
		}
	}
}
