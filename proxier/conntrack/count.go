package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Route is how translated flows go: entered where, answered by whom.
type Route struct {
	Protocol uint8
	Dst      netip.AddrPort // where the clients send to
	Reply    netip.AddrPort // who answers
}

// Load is how many flows take a route. Active are TCP and SCTP connections that are established, and UDP flows that have
// been answered for more than two seconds (assured: the kernel keeps them for 120 s without a packet, others for 30 s).
// Everything else is inactive: connections that begin or end, TIME_WAIT, a single question and its answer.
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
		ask := func(m *message) { m.translated(k.seq, family) }
		err = k.read(ask, func(body []byte) {
			var f countedFlow
			if f.parse(body) {
				loads[f.Route] = loads[f.Route].with(f.active())
			}
		})
		if !errors.Is(err, errInterrupted) {
			return loads, err
		}
	}
	// A table that changes its size all the time: what was seen is better than nothing.
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
	attrStatusMask = 26 // kernel 5.18; older ones deliver all flows

	infoTCP, infoSCTP = 1, 3
	infoState         = 1 // in both

	tcpEstablished  = 3
	sctpEstablished = 4

	statusAssured = 1 << 2
)

// translated asks for the flows of a family whose destination was translated.
func (m *message) translated(seq uint32, family state.Family) {
	m.begin(msgGet, unix.NLM_F_DUMP, seq, family)
	bit := binary.BigEndian.AppendUint32(nil, statusDNAT)
	m.attr(attrStatus, bit)
	m.attr(attrStatusMask, bit)
	m.end()
}

// countedFlow is what counting needs to know of an entry.
type countedFlow struct {
	Route
	status uint32
	state  uint8 // of the protocol's state machine
}

// parse reads an entry from the body of a message; false: it is not a translated flow.
func (f *countedFlow) parse(body []byte) bool {
	if len(body) < genHeader {
		return false
	}
	var orig, reply tuple
	eachAttr(body[genHeader:], func(kind uint16, _, value []byte) {
		switch kind {
		case attrTupleOrig:
			orig.parse(value)
		case attrTupleReply:
			reply.parse(value)
		case attrStatus:
			if len(value) == 4 {
				f.status = binary.BigEndian.Uint32(value)
			}
		case attrProtoInfo:
			f.parseState(value)
		}
	})
	f.Route = Route{orig.protocol, netip.AddrPortFrom(orig.dst, orig.dport), netip.AddrPortFrom(reply.src, reply.sport)}
	return f.Dst.IsValid() && f.Reply.IsValid() && f.status&statusDNAT != 0
}

func (f *countedFlow) parseState(b []byte) {
	eachAttr(b, func(kind uint16, _, info []byte) {
		if kind != infoTCP && kind != infoSCTP {
			return
		}
		eachAttr(info, func(kind uint16, _, value []byte) {
			if kind == infoState && len(value) == 1 {
				f.state = value[0]
			}
		})
	})
}

func (f *countedFlow) active() bool {
	switch f.Protocol {
	case unix.IPPROTO_TCP:
		return f.state == tcpEstablished
	case unix.IPPROTO_SCTP:
		return f.state == sctpEstablished
	}
	return f.status&statusAssured != 0
}
