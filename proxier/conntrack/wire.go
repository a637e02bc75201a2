package conntrack

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

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

	statusDNAT = 1 << 5 // IPS_DST_NAT
)

// Flags of a filter: which parts of the tuple count (kernel 5.8, net/netfilter/nf_internals.h).
const (
	byDst       = 1 << 1
	byProtocol  = 1 << 3
	byDstPort   = 1 << 5
	nested      = unix.NLA_F_NESTED
	typeMask    = ^uint16(unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER)
	attrHeader  = unix.SizeofNlAttr
	genHeader   = 4 // struct nfgenmsg
	messageHead = unix.SizeofNlMsghdr
)

// message builds netlink messages one behind the other.
type message struct {
	buf   []byte
	start int // of the present message
}

// begin starts a message for the connection tracking subsystem.
func (m *message) begin(kind uint16, flags uint16, seq uint32, family state.Family) {
	m.start = len(m.buf)
	m.buf = binary.NativeEndian.AppendUint32(m.buf, 0) // length, see end
	m.buf = binary.NativeEndian.AppendUint16(m.buf, kind)
	m.buf = binary.NativeEndian.AppendUint16(m.buf, unix.NLM_F_REQUEST|flags)
	m.buf = binary.NativeEndian.AppendUint32(m.buf, seq)
	m.buf = binary.NativeEndian.AppendUint32(m.buf, 0) // port: the kernel knows
	m.buf = append(m.buf, protocolFamily(family), unix.NFNETLINK_V0, 0, 0)
}

func (m *message) end() {
	binary.NativeEndian.PutUint32(m.buf[m.start:], uint32(len(m.buf)-m.start))
}

// attr adds an attribute with a value of at most a few bytes.
func (m *message) attr(kind uint16, value []byte) {
	m.buf = binary.NativeEndian.AppendUint16(m.buf, uint16(attrHeader+len(value)))
	m.buf = binary.NativeEndian.AppendUint16(m.buf, kind)
	m.buf = append(m.buf, value...)
	for len(m.buf)%4 != 0 {
		m.buf = append(m.buf, 0)
	}
}

// nest adds an attribute that consists of attributes.
func (m *message) nest(kind uint16, fill func()) {
	start := len(m.buf)
	m.attr(kind|nested, nil)
	fill()
	binary.NativeEndian.PutUint16(m.buf[start:], uint16(len(m.buf)-start))
}

func protocolFamily(f state.Family) uint8 {
	if f == state.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// question asks for the UDP flows of a family to a frontend, or to anywhere.
func (m *message) question(seq uint32, family state.Family, to *Frontend) {
	m.begin(msgGet, unix.NLM_F_DUMP, seq, family)
	flags := uint32(byProtocol)
	m.nest(attrTupleOrig, func() {
		if to != nil && to.Addr.IsValid() {
			flags |= byDst
			m.nest(tupleIP, func() { m.attr(dstAttr(family), to.Addr.AsSlice()) })
		}
		m.nest(tupleProto, func() {
			m.attr(protoNum, []byte{unix.IPPROTO_UDP})
			if to != nil {
				flags |= byDstPort
				m.attr(protoDport, binary.BigEndian.AppendUint16(nil, to.Port))
			}
		})
	})
	m.nest(attrFilter, func() { m.attr(filterOrig, binary.NativeEndian.AppendUint32(nil, flags)) })
	m.end()
}

func dstAttr(family state.Family) uint16 {
	if family == state.IPv6 {
		return ipv6Dst
	}
	return ipv4Dst
}

// deletion asks for the removal of one entry, named by what parse kept of it.
func (m *message) deletion(seq uint32, family state.Family, key []byte) {
	m.begin(msgDelete, unix.NLM_F_ACK, seq, family)
	m.buf = append(m.buf, key...)
	m.end()
}

// eachAttr walks over attributes. What is cut short is left out.
func eachAttr(b []byte, fn func(kind uint16, whole, value []byte)) {
	for len(b) >= attrHeader {
		length := int(binary.NativeEndian.Uint16(b))
		if length < attrHeader || length > len(b) {
			return
		}
		padded := min((length+3)&^3, len(b))
		fn(binary.NativeEndian.Uint16(b[2:])&typeMask, b[:padded], b[attrHeader:length])
		b = b[padded:]
	}
}

// parse reads an entry from the body of a message, into e, whose memory is used again. The key is the tuple of the
// original direction, the zone, and the number of the entry: with that the kernel deletes this very entry, not one
// that took its place in the meantime (unless it took its place in memory as well, the number is made from that).
func (e *entry) parse(body []byte) bool {
	e.key, e.Zone, e.DNAT, e.udp = e.key[:0], 0, false, false
	if len(body) < genHeader {
		return false
	}
	var orig, reply tuple
	eachAttr(body[genHeader:], func(kind uint16, whole, value []byte) {
		switch kind {
		case attrTupleOrig:
			orig.parse(value)
		case attrTupleReply:
			reply.parse(value)
			return
		case attrStatus:
			e.DNAT = len(value) == 4 && binary.BigEndian.Uint32(value)&statusDNAT != 0
			return
		case attrZone:
			e.Zone = uint16Of(value)
		case attrID:
		default:
			return
		}
		e.key = append(e.key, whole...)
	})
	e.Dst = netip.AddrPortFrom(orig.dst, orig.dport)
	e.Reply = netip.AddrPortFrom(reply.src, reply.sport)
	e.Zone = max(e.Zone, orig.zone, reply.zone) // a zone can be set for one direction only
	e.udp = orig.protocol == unix.IPPROTO_UDP
	return e.Dst.IsValid() && e.Reply.IsValid()
}

// tuple is one direction of a flow.
type tuple struct {
	src, dst     netip.Addr
	sport, dport uint16
	zone         uint16
	protocol     uint8
}

func (t *tuple) parse(b []byte) {
	eachAttr(b, func(kind uint16, _, value []byte) {
		switch kind {
		case tupleIP:
			t.parseIP(value)
		case tupleProto:
			t.parseProto(value)
		case tupleZone:
			t.zone = uint16Of(value)
		}
	})
}

func (t *tuple) parseIP(b []byte) {
	eachAttr(b, func(kind uint16, _, value []byte) {
		addr, ok := netip.AddrFromSlice(value)
		switch {
		case !ok:
		case kind == ipv4Src || kind == ipv6Src:
			t.src = addr
		case kind == ipv4Dst || kind == ipv6Dst:
			t.dst = addr
		}
	})
}

func (t *tuple) parseProto(b []byte) {
	eachAttr(b, func(kind uint16, _, value []byte) {
		switch {
		case kind == protoNum && len(value) == 1:
			t.protocol = value[0]
		case kind == protoSport:
			t.sport = uint16Of(value)
		case kind == protoDport:
			t.dport = uint16Of(value)
		}
	})
}

func uint16Of(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}
