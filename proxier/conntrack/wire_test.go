package conntrack

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func query(protocol uint8, src, dst string) Query {
	from := netip.MustParseAddrPort(src)
	return Query{Protocol: protocol, Src: from.Addr(), SrcPort: from.Port(), Dst: netip.MustParseAddrPort(dst)}
}

// TestTuple: the flow that a request names is the one that an entry with the same attributes is.
func TestTuple(t *testing.T) {
	for _, q := range []Query{query(unix.IPPROTO_UDP, "10.9.0.1:40000", "10.96.0.10:53"), query(unix.IPPROTO_TCP, "[fd00:9::1]:40001", "[fd00:96::a]:80")} {
		var r request
		r.tuple(q)
		var got tuple
		a := nlmsg.NewAttributes(r.Buf)
		if !a.Next() || a.Kind != attrTupleOrig {
			t.Fatalf("%+v: no tuple of the original direction", q)
		}
		got.parse(a.Nested())
		want := tuple{src: q.Src, sport: q.SrcPort, dst: q.Dst.Addr(), dport: q.Dst.Port(), protocol: q.Protocol}
		if got != want || a.Next() {
			t.Errorf("%+v: the request names %+v", q, got)
		}
	}
	if got := []state.Family{(&Query{Dst: netip.MustParseAddrPort("10.0.0.1:1")}).family(), (&Query{Dst: netip.MustParseAddrPort("[fd00::1]:1")}).family()}; !slices.Equal(got, []state.Family{state.IPv4, state.IPv6}) {
		t.Errorf("families %v", got)
	}
}

// TestMatches: a flow is found by protocol, client, destination and, if it is known, the client's port.
func TestMatches(t *testing.T) {
	f := FoundFlow{Protocol: unix.IPPROTO_UDP, Src: netip.MustParseAddrPort("10.9.0.1:40000"), Dst: netip.MustParseAddrPort("10.96.0.10:53")}
	for _, tt := range []struct {
		q    Query
		want bool
	}{
		{query(unix.IPPROTO_UDP, "10.9.0.1:40000", "10.96.0.10:53"), true},
		{query(unix.IPPROTO_UDP, "10.9.0.1:0", "10.96.0.10:53"), true},
		{query(unix.IPPROTO_TCP, "10.9.0.1:40000", "10.96.0.10:53"), false},
		{query(unix.IPPROTO_UDP, "10.9.0.1:40001", "10.96.0.10:53"), false},
		{query(unix.IPPROTO_UDP, "10.9.0.2:40000", "10.96.0.10:53"), false},
		{query(unix.IPPROTO_UDP, "10.9.0.1:40000", "10.96.0.10:54"), false},
		{query(unix.IPPROTO_UDP, "10.9.0.1:40000", "10.96.0.11:53"), false},
	} {
		if got := tt.q.matches(&f); got != tt.want {
			t.Errorf("%+v: %t", tt.q, got)
		}
	}
}

// TestEntry: an entry is read whole, and its key has what the kernel needs to find it again. The memory of the entry before
// leaves nothing behind.
func TestEntry(t *testing.T) {
	var e entry
	for _, tt := range []struct {
		name      string
		protocol  uint8
		status    uint32
		zone      uint16 // of the entry
		replyZone uint16
		want      Flow
	}{
		{"translated UDP in a zone", unix.IPPROTO_UDP, statusDNAT | statusSeenReply, 7, 0, Flow{DNAT: true, Zone: 7}},
		{"TCP", unix.IPPROTO_TCP, statusSeenReply, 0, 0, Flow{TCP: true}},
		{"a zone of one direction", unix.IPPROTO_UDP, statusDNAT, 0, 9, Flow{DNAT: true, Zone: 9}},
		{"plain", unix.IPPROTO_UDP, 0, 0, 0, Flow{}},
	} {
		var w nlmsg.Writer
		direction := func(kind uint16, src, dst string, zone uint16) {
			from, to := netip.MustParseAddrPort(src), netip.MustParseAddrPort(dst)
			whole, ip := w.Nest(kind), w.Nest(tupleIP)
			w.Bytes(ipv4Src, from.Addr().AsSlice())
			w.Bytes(ipv4Dst, to.Addr().AsSlice())
			w.Unnest(ip)
			proto := w.Nest(tupleProto)
			w.Uint8(protoNum, tt.protocol)
			w.Uint16(protoSport, from.Port())
			w.Uint16(protoDport, to.Port())
			w.Unnest(proto)
			if zone != 0 {
				w.Uint16(tupleZone, zone)
			}
			w.Unnest(whole)
		}
		direction(attrTupleOrig, "10.9.0.1:40000", "10.96.0.10:53", 0)
		key := slices.Clone(w.Buf)
		direction(attrTupleReply, "10.0.0.1:5353", "10.9.0.1:40000", tt.replyZone)
		w.Uint32(attrStatus, tt.status)
		if tt.zone != 0 {
			at := len(w.Buf)
			w.Uint16(attrZone, tt.zone)
			key = append(key, w.Buf[at:]...)
		}
		at := len(w.Buf)
		w.Uint32(attrID, 12345)
		key = append(key, w.Buf[at:]...)
		tt.want.Src, tt.want.Dst, tt.want.Reply = netip.MustParseAddr("10.9.0.1"), netip.MustParseAddrPort("10.96.0.10:53"), netip.MustParseAddrPort("10.0.0.1:5353")
		if ok := e.parse(nlmsg.NewAttributes(w.Buf)); !ok || e.Flow != tt.want {
			t.Errorf("%s: %t, %+v, want %+v", tt.name, ok, e.Flow, tt.want)
		}
		if !bytes.Equal(e.key, key) {
			t.Errorf("%s: key %x, want %x", tt.name, e.key, key)
		}
	}
}

// TestFastPath: the kernel tells neither state nor timeout of a connection on the fast path, which is open all the same.
func TestFastPath(t *testing.T) {
	var w nlmsg.Writer
	proto := w.Nest(attrTupleOrig)
	inner := w.Nest(tupleProto)
	w.Uint8(protoNum, unix.IPPROTO_TCP)
	w.Unnest(inner)
	w.Unnest(proto)
	before := len(w.Buf)
	for status, want := range map[uint32]Load{
		statusDNAT | statusAssured | statusOffload: {Active: 1, FastPath: 1}, statusDNAT | statusAssured: {Inactive: 1},
	} {
		var e entry
		w.Buf = w.Buf[:before]
		w.Uint32(attrStatus, status)
		e.parse(nlmsg.NewAttributes(w.Buf))
		if got := (Load{}).with(&e); got != want || e.found().FastPath != (want.FastPath > 0) || e.found().State != map[bool]string{true: "", false: "NONE"}[want.FastPath > 0] {
			t.Errorf("status %#x: %+v, %+v, want %+v", status, got, e.found(), want)
		}
	}
}

// TestICMP: what a flow of ICMP has instead of ports is not taken for its protocol.
func TestICMP(t *testing.T) {
	var w nlmsg.Writer
	proto := w.Nest(tupleProto)
	w.Uint8(protoNum, unix.IPPROTO_ICMP)
	w.Uint8(5, 8) // the type: an echo
	w.Unnest(proto)
	var got tuple
	if got.parse(nlmsg.NewAttributes(w.Buf)); got != (tuple{protocol: unix.IPPROTO_ICMP}) {
		t.Errorf("%+v", got)
	}
}
