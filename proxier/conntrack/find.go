package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

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
	k, err := dial(o)
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
	// Without addresses: Linux 6.18 inverts the filter for IPv6 addresses.
	ask := func(r *request) {
		r.dump(q.family(), filter{protocol: q.Protocol, to: netip.AddrPortFrom(netip.Addr{}, q.Dst.Port())})
	}
	if q.SrcPort != 0 {
		ask = func(r *request) { r.flow(msgGet, q) }
	}
	err = k.read(ask, true, func() { out = nil }, func(e *entry) {
		if f := e.found(); q.matches(&f) && len(out) < maxFound {
			out = append(out, f)
		}
	})
	if errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return out, err
}

func (q *Query) matches(f *FoundFlow) bool {
	return f.Protocol == q.Protocol && f.Src.Addr() == q.Src && f.Dst == q.Dst &&
		(q.SrcPort == 0 || f.Src.Port() == q.SrcPort)
}

func (e *entry) found() FoundFlow {
	f := FoundFlow{
		Protocol:   e.orig.protocol,
		Src:        netip.AddrPortFrom(e.orig.src, e.orig.sport),
		Dst:        e.Dst,
		ReplySrc:   e.Reply,
		ReplyDst:   netip.AddrPortFrom(e.reply.dst, e.reply.dport),
		Translated: e.DNAT,
		Answered:   e.answered(),
		Confirmed:  e.status&statusConfirmed != 0,
		Timeout:    time.Duration(e.timeout) * time.Second,
	}
	if e.TCP {
		f.State = tcpState(e.state)
	}
	return f
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
