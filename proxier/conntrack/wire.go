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
	attrID         = 12
	attrZone       = 18
	attrFilter     = 25

	tupleIP    = 1
	tupleProto = 2
	tupleZone  = 3

	ipv4Src, ipv4Dst = 1, 2
	ipv6Src, ipv6Dst = 3, 4

	protoNum               = 1
	protoSport, protoDport = 2, 3

	filterOrig = 1

	statusSeenReply = 1 << 1 // IPS_SEEN_REPLY
	statusDNAT      = 1 << 5 // IPS_DST_NAT
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
	return r.Begin(kind, flags, protocolFamily(family), 0)
}

func protocolFamily(f state.Family) uint8 {
	if f == state.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// question asks for the flows of a family to a frontend, as table.dump does.
func (r *request) question(family state.Family, to *Frontend) {
	message := r.begin(msgGet, unix.NLM_F_DUMP, family)
	flags := uint32(byProtocol)
	tuple := r.Nest(attrTupleOrig)
	if to != nil && to.Addr.IsValid() {
		flags |= byDst
		ip := r.Nest(tupleIP)
		r.Bytes(dstAttr(family), to.Addr.AsSlice())
		r.Unnest(ip)
	}
	proto := r.Nest(tupleProto)
	protocol := uint8(unix.IPPROTO_UDP)
	if to != nil && to.TCP {
		protocol = unix.IPPROTO_TCP
	}
	r.Uint8(protoNum, protocol)
	if to != nil && to.Port != 0 {
		flags |= byDstPort
		r.Uint16(protoDport, to.Port)
	}
	r.Unnest(proto)
	r.Unnest(tuple)
	filter := r.Nest(attrFilter)
	r.Bytes(filterOrig, binary.NativeEndian.AppendUint32(nil, flags))
	r.Unnest(filter)
	r.End(message)
}

func dstAttr(family state.Family) uint16 {
	if family == state.IPv6 {
		return ipv6Dst
	}
	return ipv4Dst
}

// deletion asks for the deletion of one entry. Its key is from parse.
func (r *request) deletion(family state.Family, key []byte) {
	message := r.begin(msgDelete, unix.NLM_F_ACK, family)
	r.Raw(key)
	r.End(message)
}

// parse reads an entry from the attributes of a message into e, and uses the memory of e again. It reports false for an
// entry without addresses. The key is the tuple of the original direction, the zone, and the kernel's number of the
// entry. With the number, the kernel deletes this very entry and not a later one with the same tuple. (The kernel makes
// the number from the entry's place in memory, so a later entry at the same place would still match.)
func (e *entry) parse(a nlmsg.Attributes) bool {
	e.key, e.Zone, e.DNAT, e.answered = e.key[:0], 0, false, false
	var orig, reply tuple
	for a.Next() {
		switch a.Kind {
		case attrTupleOrig:
			orig.parse(a.Nested())
		case attrTupleReply:
			reply.parse(a.Nested())
			continue
		case attrStatus:
			status := a.Uint32()
			e.DNAT, e.answered = status&statusDNAT != 0, status&statusSeenReply != 0
			continue
		case attrZone:
			e.Zone = a.Uint16()
		case attrID:
		default:
			continue
		}
		e.key = append(e.key, a.Whole...)
	}
	e.Dst = netip.AddrPortFrom(orig.dst, orig.dport)
	e.Reply = netip.AddrPortFrom(reply.src, reply.sport)
	e.Zone = max(e.Zone, orig.zone, reply.zone) // a zone can be set for one direction only
	e.udp, e.tcp = orig.protocol == unix.IPPROTO_UDP, orig.protocol == unix.IPPROTO_TCP
	e.TCP = e.tcp
	return e.Dst.IsValid() && e.Reply.IsValid()
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
