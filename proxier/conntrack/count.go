package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Route is the way of translated flows: from a frontend to an endpoint.
type Route struct {
	Protocol uint8
	Dst      netip.AddrPort // where the clients send to
	Reply    netip.AddrPort // where the answers come from
}

// Load is the number of flows on a route. Active flows are established TCP and SCTP connections, and UDP flows with
// packets in both directions for more than two seconds. (The kernel calls these assured, and keeps them for 120 s
// without a packet, other UDP flows for 30 s.) All other flows are inactive: connections that begin or end, TIME_WAIT,
// and a single question with its answer.
type Load struct{ Active, Inactive int }

// Count reads the kernel's table once and counts the translated flows of a family.
func Count(o Options, family state.Family) (map[Route]Load, error) {
	k, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	loads, err := k.count(family)
	if err != nil {
		err = fmt.Errorf("count %v flows: %w", family, err)
	}
	return loads, errors.Join(err, k.close())
}

func (k *kernel) count(family state.Family) (loads map[Route]Load, err error) {
	for range dumpTries {
		loads = map[Route]Load{}
		err = k.read(func(r *request) { r.translated(family) }, func(a nlmsg.Attributes) {
			var r record
			r.parse(a)
			if way, translated := r.route(); translated {
				loads[way] = loads[way].with(r.active())
			}
		})
		if !errors.Is(err, errInterrupted) {
			return loads, err
		}
	}
	// The kernel resizes the table again and again: a count that may lack some flows is better than none.
	return loads, nil
}

func (l Load) with(active bool) Load {
	if active {
		l.Active++
	} else {
		l.Inactive++
	}
	return l
}

const (
	attrProtoInfo  = 4
	attrTimeout    = 7
	attrStatusMask = 26 // kernel 5.18; older ones deliver all flows

	infoTCP, infoSCTP = 1, 3
	infoState         = 1 // in both

	tcpEstablished  = 3
	sctpEstablished = 4

	statusAssured = 1 << 2
)

// translated asks for the flows of a family whose destination was translated.
func (r *request) translated(family state.Family) {
	message := r.begin(msgGet, unix.NLM_F_DUMP, family)
	r.Uint32(attrStatus, statusDNAT)
	r.Uint32(attrStatusMask, statusDNAT)
	r.End(message)
}

// record is an entry of the kernel's table, as far as it matters for counting and finding flows.
type record struct {
	orig, reply tuple
	status      uint32
	state       uint8 // of the protocol's state machine
	timeout     uint32
}

func (r *record) parse(a nlmsg.Attributes) {
	for a.Next() {
		switch a.Kind {
		case attrTupleOrig:
			r.orig.parse(a.Nested())
		case attrTupleReply:
			r.reply.parse(a.Nested())
		case attrStatus:
			r.status = a.Uint32()
		case attrTimeout:
			r.timeout = a.Uint32()
		case attrProtoInfo:
			r.parseState(a.Nested())
		}
	}
}

// route reports whether the entry is a translated flow, and its way.
func (r *record) route() (way Route, translated bool) {
	way = Route{
		Protocol: r.orig.protocol,
		Dst:      netip.AddrPortFrom(r.orig.dst, r.orig.dport),
		Reply:    netip.AddrPortFrom(r.reply.src, r.reply.sport),
	}
	return way, way.Dst.IsValid() && way.Reply.IsValid() && r.status&statusDNAT != 0
}

func (r *record) parseState(a nlmsg.Attributes) {
	for a.Next() {
		if a.Kind != infoTCP && a.Kind != infoSCTP {
			continue
		}
		for info := a.Nested(); info.Next(); {
			if info.Kind == infoState && len(info.Value) == 1 {
				r.state = info.Value[0]
			}
		}
	}
}

func (r *record) active() bool {
	switch r.orig.protocol {
	case unix.IPPROTO_TCP:
		return r.state == tcpEstablished
	case unix.IPPROTO_SCTP:
		return r.state == sctpEstablished
	}
	return r.status&statusAssured != 0
}
