package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Message and attribute numbers: linux/netfilter/nfnetlink_conntrack.h.
const (
	msgGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	msgDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	attrTupleOrig  = 1
	attrTupleReply = 2
	attrStatus     = 3
	attrProtoInfo  = 4
	attrTimeout    = 7
	attrID         = 12
	attrZone       = 18
	attrFilter     = 25
	attrStatusMask = 26

	tupleIP    = 1
	tupleProto = 2
	tupleZone  = 3

	ipv4Src, ipv4Dst = 1, 2
	ipv6Src, ipv6Dst = 3, 4

	protoNum               = 1
	protoSport, protoDport = 2, 3

	filterOrig = 1

	infoTCP, infoSCTP = 1, 3
	infoState         = 1 // in both

	tcpSynSent, tcpEstablished      = 1, 3
	sctpCookieWait, sctpEstablished = 2, 4 // after INIT, it is closed until the answer comes

	statusSeenReply = 1 << 1  // IPS_SEEN_REPLY
	statusAssured   = 1 << 2  // IPS_ASSURED
	statusConfirmed = 1 << 3  // IPS_CONFIRMED
	statusDNAT      = 1 << 5  // IPS_DST_NAT
	statusOffload   = 1 << 14 // IPS_OFFLOAD
)

// Flags of a filter: which parts of the tuple must match (kernel 5.8, net/netfilter/nf_internals.h).
const (
	byDst      = 1 << 1
	byProtocol = 1 << 3
	byDstPort  = 1 << 5
)

// request writes messages to connection tracking, one behind the other.
type request struct{ nlmsg.Writer }

func (r *request) begin(kind, flags uint16, family state.Family) int {
	return r.Begin(kind, flags, uint8(family), 0)
}

// filter says which flows the kernel returns.
type filter struct {
	protocol     uint8          // 0: all
	to           netip.AddrPort // where the clients send to; no address or port: all of the protocol
	status, mask uint32         // the bits of the mask are as in the status; needs kernel 5.18, older ones return all
	partial      bool           // some flows are enough, if the kernel resizes the table again and again
}

// dump asks for flows of a family.
func (r *request) dump(family state.Family, f filter) {
	message := r.begin(msgGet, unix.NLM_F_DUMP, family)
	if f.mask != 0 {
		r.Uint32(attrStatus, f.status)
		r.Uint32(attrStatusMask, f.mask)
	}
	if f.protocol != 0 {
		r.filterTuple(family, f)
	}
	r.End(message)
}

func (r *request) filterTuple(family state.Family, f filter) {
	flags := uint32(byProtocol)
	tuple := r.Nest(attrTupleOrig)
	if f.to.Addr().IsValid() {
		flags |= byDst
		_, dst := addrAttrs(family)
		ip := r.Nest(tupleIP)
		r.Bytes(dst, f.to.Addr().AsSlice())
		r.Unnest(ip)
	}
	proto := r.Nest(tupleProto)
	r.Uint8(protoNum, f.protocol)
	if f.to.Port() != 0 {
		flags |= byDstPort
		r.Uint16(protoDport, f.to.Port())
	}
	r.Unnest(proto)
	r.Unnest(tuple)
	filter := r.Nest(attrFilter)
	r.Bytes(filterOrig, binary.NativeEndian.AppendUint32(nil, flags))
	r.Unnest(filter)
}

func addrAttrs(family state.Family) (src, dst uint16) {
	if family == state.IPv6 {
		return ipv6Src, ipv6Dst
	}
	return ipv4Src, ipv4Dst
}

// flow asks for one flow by its tuple, or for its deletion.
func (r *request) flow(kind uint16, q Query) {
	message := r.begin(kind, unix.NLM_F_ACK, q.family())
	r.tuple(q)
	r.End(message)
}

// tuple writes the original direction of a flow.
func (r *request) tuple(q Query) {
	src, dst := addrAttrs(q.family())
	tuple := r.Nest(attrTupleOrig)
	ip := r.Nest(tupleIP)
	r.Bytes(src, q.Src.AsSlice())
	r.Bytes(dst, q.Dst.Addr().AsSlice())
	r.Unnest(ip)
	proto := r.Nest(tupleProto)
	r.Uint8(protoNum, q.Protocol)
	r.Uint16(protoSport, q.SrcPort)
	r.Uint16(protoDport, q.Dst.Port())
	r.Unnest(proto)
	r.Unnest(tuple)
}

// deletion asks for the deletion of one entry. Its key is from parse.
func (r *request) deletion(family state.Family, key []byte) {
	message := r.begin(msgDelete, unix.NLM_F_ACK, family)
	r.Raw(key)
	r.End(message)
}

// entry is a flow in the kernel's table. It is valid until the function that got it returns.
type entry struct {
	Flow
	orig, reply tuple
	status      uint32
	state       uint8 // of the protocol's state machine
	timeout     uint32
	key         []byte // the attributes that a deletion needs
}

// parse reads an entry from the attributes of a message into e, and uses the memory of e again. It reports false for an
// entry without addresses. The key is the tuple of the original direction, the zone, and the kernel's number of the
// entry. With the number, the kernel deletes this very entry and not a later one with the same tuple. (The kernel makes
// the number from the entry's place in memory, so a later entry at the same place would still match.)
func (e *entry) parse(a nlmsg.Attributes) bool {
	*e = entry{key: e.key[:0]}
	for a.Next() {
		switch a.Kind {
		case attrTupleOrig:
			e.orig.parse(a.Nested())
		case attrTupleReply:
			e.reply.parse(a.Nested())
		case attrStatus:
			e.status = a.Uint32()
		case attrTimeout:
			e.timeout = a.Uint32()
		case attrProtoInfo:
			e.parseState(a.Nested())
		case attrZone:
			e.Zone = a.Uint16()
		}
		if a.Kind == attrTupleOrig || a.Kind == attrZone || a.Kind == attrID {
			e.key = append(e.key, a.Whole...)
		}
	}
	e.Src, e.Dst = e.orig.src, netip.AddrPortFrom(e.orig.dst, e.orig.dport)
	e.Reply = netip.AddrPortFrom(e.reply.src, e.reply.sport)
	e.Zone = max(e.Zone, e.orig.zone, e.reply.zone) // a zone can be set for one direction only
	e.DNAT, e.TCP, e.SCTP = e.status&statusDNAT != 0, e.orig.protocol == unix.IPPROTO_TCP, e.orig.protocol == unix.IPPROTO_SCTP
	return e.Dst.IsValid() && e.Reply.IsValid()
}

// answered reports whether packets came back.
func (e *entry) answered() bool { return e.status&statusSeenReply != 0 }

// opening reports whether a connection has not got further than its first packet, and waits for an answer to it. One that began
// before the kernel tracked it, or whose answers pass this node by, may be open although no answer was seen.
func (e *entry) opening() bool {
	return e.TCP && e.state == tcpSynSent || e.SCTP && e.state <= sctpCookieWait
}

func (e *entry) route() Route { return Route{Protocol: e.orig.protocol, Dst: e.Dst, Reply: e.Reply} }

func (e *entry) parseState(a nlmsg.Attributes) {
	for a.Next() {
		if a.Kind != infoTCP && a.Kind != infoSCTP {
			continue
		}
		for info := a.Nested(); info.Next(); {
			if info.Kind == infoState && len(info.Value) == 1 {
				e.state = info.Value[0]
			}
		}
	}
}

// onFastPath reports whether packets of the flow skip the rules. The kernel then tells neither its state nor its timeout.
func (e *entry) onFastPath() bool { return e.status&statusOffload != 0 }

func (e *entry) active() bool {
	if e.onFastPath() {
		return true
	}
	switch e.orig.protocol {
	case unix.IPPROTO_TCP:
		return e.state == tcpEstablished
	case unix.IPPROTO_SCTP:
		return e.state == sctpEstablished
	}
	return e.status&statusAssured != 0
}

// tuple is one direction of a flow.
type tuple struct {
	src, dst     netip.Addr
	sport, dport uint16
	zone         uint16
	protocol     uint8
}

func (t *tuple) parse(a nlmsg.Attributes) {
	for a.Next() {
		switch a.Kind {
		case tupleIP:
			t.parseIP(a.Nested())
		case tupleProto:
			t.parseProto(a.Nested())
		case tupleZone:
			t.zone = a.Uint16()
		}
	}
}

func (t *tuple) parseIP(a nlmsg.Attributes) {
	for a.Next() {
		addr, ok := netip.AddrFromSlice(a.Value)
		switch {
		case !ok:
		case a.Kind == ipv4Src || a.Kind == ipv6Src:
			t.src = addr
		case a.Kind == ipv4Dst || a.Kind == ipv6Dst:
			t.dst = addr
		}
	}
}

func (t *tuple) parseProto(a nlmsg.Attributes) {
	for a.Next() {
		switch {
		case a.Kind == protoNum && len(a.Value) == 1:
			t.protocol = a.Value[0]
		case a.Kind == protoSport:
			t.sport = a.Uint16()
		case a.Kind == protoDport:
			t.dport = a.Uint16()
		}
	}
}
