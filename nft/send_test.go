package nft

import (
	"bytes"
	"net/netip"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

func TestSendFailure(t *testing.T) {
	for errno, want := range map[unix.Errno]Outcome{
		unix.EMSGSIZE: Rejected, unix.EPERM: Rejected, unix.ENOMEM: Rejected, unix.ENOTSOCK: Rejected,
		unix.ENOBUFS: Unknown, unix.EINTR: Unknown, unix.ECONNREFUSED: Unknown,
	} {
		if got := sendFailure(errno); got != want {
			t.Errorf("%v: %s, wanted %s", errno, got, want)
		}
	}
}

// TestBlame has answers of the kernel that ordinary clashes do not cause.
func TestBlame(t *testing.T) {
	tx := elementsOf(t, kindsExample(), false)
	tx.operation(operation{kind: opAddTable, family: IPv6})
	for i := range 2000 {
		tx.add(IPv6, idServices, tx.element(strconv.Itoa(i), func(k *builder) {
			k.addr(netip.AddrFrom16([16]byte{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}))
			k.proto(tcp)
			k.port(80)
		}, func(v *builder) { v.word(uint32(i)) }))
	}
	services := tx.elements[1][idServices].add
	marked := services[len(services)-500]
	var b batch
	if err := b.encode(tx); err != nil {
		t.Fatal(err)
	}
	elements := b.messages[1]
	second := b.messages[slices.IndexFunc(b.messages, func(m messageInfo) bool {
		return m.family == IPv6 && m.set == idServices && m.element > 0
	})]
	for name, test := range map[string]struct {
		why  nlmsg.Ack
		want string
	}{
		"the opening message":      {nlmsg.Ack{Seq: b.first}, "the transaction as a whole"},
		"a sequence number unseen": {nlmsg.Ack{Seq: b.last + 9}, "the transaction as a whole"},
		"an operation":             {nlmsg.Ack{Seq: b.messages[0].seq}, `add table ip6 verdict { comment "verdict layout 1"; }`},
		"no offset":                {nlmsg.Ack{Seq: elements.seq}, "add element ip verdict services"},
		"offset inside an element": {nlmsg.Ack{Seq: elements.seq, Offset: 101}, "add element ip verdict services"},
		"an element of a second message": {
			nlmsg.Ack{Seq: second.seq, Offset: uint32(bytes.Index(b.Buf[second.start:], marked.keyBytes(tx.arena)) - 3*nlmsg.AttributeHeaderSize)},
			`add element ip6 verdict services { fd00::5dc . tcp . 80 comment "1500" : 0:5dc }`,
		},
		"offset past the message": {nlmsg.Ack{Seq: elements.seq, Offset: 1 << 30}, "add element ip verdict services"},
	} {
		if got := b.blame(tx, &test.why); got != test.want {
			t.Errorf("%s: %q, wanted %q", name, got, test.want)
		}
	}
}
