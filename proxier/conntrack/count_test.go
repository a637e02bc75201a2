package conntrack

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

func route(protocol uint8, dst, reply string) Route {
	return Route{protocol, netip.MustParseAddrPort(dst), netip.MustParseAddrPort(reply)}
}

// TestRecord reads entries that lack attributes.
func TestRecord(t *testing.T) {
	var w nlmsg.Writer
	tuple := func(kind uint16, src, dst string) {
		whole, ip := w.Nest(kind), w.Nest(tupleIP)
		w.Bytes(ipv4Src, netip.MustParseAddr(src).AsSlice())
		w.Bytes(ipv4Dst, netip.MustParseAddr(dst).AsSlice())
		w.Unnest(ip)
		proto := w.Nest(tupleProto)
		w.Uint8(protoNum, unix.IPPROTO_TCP)
		w.Unnest(proto)
		w.Unnest(whole)
	}
	tuple(attrTupleOrig, "10.9.0.1", "10.96.0.10")
	tuple(attrTupleReply, "10.0.0.1", "10.9.0.1")
	read := func(message []byte) (e entry, translated bool) {
		whole := e.parse(nlmsg.NewAttributes(message))
		return e, whole && e.DNAT
	}
	if _, translated := read(w.Buf); translated {
		t.Error("a flow without a status counts as translated")
	}
	w.Uint32(attrStatus, statusDNAT)
	for cut := range w.Buf {
		if _, translated := read(w.Buf[:cut]); translated {
			t.Errorf("cut to %d of %d bytes it still counts", cut, len(w.Buf))
		}
	}
	if r, translated := read(w.Buf); !translated || r.active() {
		t.Errorf("read as %+v, want a translated flow that is not active, because it has no state", r)
	}
}
