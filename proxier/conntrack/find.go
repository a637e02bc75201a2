package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Query names the flows of one client to one destination.
type Query struct {
	Protocol uint8
	Src      netip.Addr
	SrcPort  uint16 // 0: all
	Dst      netip.AddrPort
}

// FoundFlow is an entry of the kernel's table.
type FoundFlow struct {
	Protocol            uint8
	Src, Dst            netip.AddrPort // as the client sends
	ReplySrc, ReplyDst  netip.AddrPort // as the server answers
	Translated          bool           // the destination was translated
	Answered, Confirmed bool
	State               string // of TCP; otherwise empty
	Timeout             time.Duration
}

// maxFound bounds the flows that Find returns.
const maxFound = 100

// Find returns the flows of a client to a destination, at most 100. Without a source port the kernel walks its whole
// table, but hands over only the flows of this protocol and port (kernel 5.8; older ones hand over all).
func Find(o Options, q Query) ([]FoundFlow, error) {
	k, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	flows, err := k.find(q)
	if err != nil {
		err = fmt.Errorf("look for flows from %s to %s: %w", q.Src, q.Dst, err)
	}
	return flows, errors.Join(err, k.close())
}

func (k *kernel) find(q Query) (out []FoundFlow, err error) {
	ask := func(r *request) { r.flowsTo(q) }
	if q.SrcPort != 0 {
		ask = func(r *request) { r.flow(q) }
	}
	for range dumpTries {
		out = nil
		err = k.read(ask, func(a nlmsg.Attributes) {
			var f FoundFlow
			if f.parse(a) && q.matches(&f) && len(out) < maxFound {
				out = append(out, f)
			}
		})
		switch {
		case errors.Is(err, unix.ENOENT):
			return nil, nil
		case !errors.Is(err, errInterrupted):
			return out, err
		}
	}
	return out, nil // the kernel resizes the table again and again; what was found is right
}

func (q *Query) matches(f *FoundFlow) bool {
	return f.Protocol == q.Protocol && f.Src.Addr() == q.Src && f.Dst == q.Dst &&
		(q.SrcPort == 0 || f.Src.Port() == q.SrcPort)
}

func (q *Query) family() state.Family {
	if q.Dst.Addr().Is4() {
		return state.IPv4
	}
	return state.IPv6
}

// flowsTo asks for all flows to a port. It leaves out addresses: Linux 6.18 inverts the filter for IPv6 addresses.
func (r *request) flowsTo(q Query) {
	message := r.begin(msgGet, unix.NLM_F_DUMP, q.family())
	tuple := r.Nest(attrTupleOrig)
	proto := r.Nest(tupleProto)
	r.Uint8(protoNum, q.Protocol)
	r.Uint16(protoDport, q.Dst.Port())
	r.Unnest(proto)
	r.Unnest(tuple)
	filter := r.Nest(attrFilter)
	r.Bytes(filterOrig, binary.NativeEndian.AppendUint32(nil, byProtocol|byDstPort))
	r.Unnest(filter)
	r.End(message)
}

// flow asks for one flow by its tuple.
func (r *request) flow(q Query) {
	message := r.begin(msgGet, unix.NLM_F_ACK, q.family())
	r.tuple(q)
	r.End(message)
}

// forget asks for the deletion of one flow by its tuple.
func (r *request) forget(q Query) {
	message := r.begin(msgDelete, unix.NLM_F_ACK, q.family())
	r.tuple(q)
	r.End(message)
}

// tuple writes the original direction of a flow.
func (r *request) tuple(q Query) {
	src, dst := uint16(ipv4Src), uint16(ipv4Dst)
	if q.family() == state.IPv6 {
		src, dst = ipv6Src, ipv6Dst
	}
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

const statusConfirmed = 1 << 3

func (f *FoundFlow) parse(a nlmsg.Attributes) bool {
	var r record
	r.parse(a)
	*f = FoundFlow{
		Protocol:   r.orig.protocol,
		Src:        netip.AddrPortFrom(r.orig.src, r.orig.sport),
		Dst:        netip.AddrPortFrom(r.orig.dst, r.orig.dport),
		ReplySrc:   netip.AddrPortFrom(r.reply.src, r.reply.sport),
		ReplyDst:   netip.AddrPortFrom(r.reply.dst, r.reply.dport),
		Translated: r.status&statusDNAT != 0,
		Answered:   r.status&statusSeenReply != 0,
		Confirmed:  r.status&statusConfirmed != 0,
		Timeout:    time.Duration(r.timeout) * time.Second,
	}
	if f.Protocol == unix.IPPROTO_TCP {
		f.State = tcpState(r.state)
	}
	return f.Dst.IsValid() && f.ReplySrc.IsValid()
}

// tcpState is the name that the program conntrack prints (kernel: enum tcp_conntrack).
func tcpState(n uint8) string {
	names := []string{
		"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
	}
	if int(n) < len(names) {
		return names[n]
	}
	return ""
}
