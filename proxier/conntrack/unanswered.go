package conntrack

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TCP connections that never had an answer from an endpoint that a plan has left out may be deleted: neither end has a
// connection yet, and the next packet of the client begins another one, to an endpoint of that time.
//
// IPVS has its own entry for a connection that it carries, and sends the client's next packet elsewhere when the endpoint
// has weight 0 (net.ipv4.vs.expire_nodest_conn). While connection tracking has the connection as well, IPVS drops that
// packet first, and a client that repeats its packets after 1, 2 and 4 seconds loses 4 seconds.

// leftOut is what a Tracker knows of the TCP endpoints of a Service that its plan leaves out. Those that accept connections are not
// among them: to look for connections without an answer, the kernel walks over its whole table.
type leftOut struct {
	endpoints []netip.AddrPort // sorted
	frontends []Frontend       // where their clients send to; nil: their connections are deleted
	revision  uint64           // when an endpoint came to them
}

// leaveOut records which endpoints a plan leaves out; nil: the Service is gone.
func (t *Tracker) leaveOut(n state.Name, p *plan.Service) {
	list, is := leftOutOf(p), t.leftOut[n]
	if len(list) == 0 {
		delete(t.leftOut, n)
		return
	}
	if is == nil {
		is = &leftOut{}
		t.leftOut[n] = is
	}
	comes := func(at netip.AddrPort) bool { return !contains(is.endpoints, at) }
	if slices.ContainsFunc(list, comes) {
		t.revision++
		is.frontends, is.revision = tcpFrontends(p), t.revision
		t.clientsWait = true
	}
	is.endpoints = list
}

func contains(sorted []netip.AddrPort, at netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(sorted, at, netip.AddrPort.Compare)
	return found
}

func leftOutOf(p *plan.Service) (list []netip.AddrPort) {
	if p == nil {
		return nil
	}
	for i := range p.Choices {
		if c := &p.Choices[i]; c.Use == plan.LeftOut && c.Protocol == state.TCP && !c.Accepts {
			list = append(list, c.At)
		}
	}
	return list
}

func tcpFrontends(p *plan.Service) (list []Frontend) {
	for i := range p.Ports {
		port := &p.Ports[i]
		if port.Protocol != state.TCP {
			continue
		}
		for _, f := range port.Frontends {
			list = append(list, Frontend{Addr: f.Addr, Port: f.Port, EndPort: f.EndPort, Family: port.Family})
		}
	}
	return list
}

// unanswered lists, by frontend, the endpoints whose connections without an answer are to be deleted. The lists are sorted.
func (t *Tracker) unanswered() map[Frontend][]netip.AddrPort {
	var out map[Frontend][]netip.AddrPort
	for _, is := range t.leftOut {
		for _, f := range is.frontends {
			if out == nil {
				out = map[Frontend][]netip.AddrPort{}
			}
			if list := out[f]; list != nil { // the frontend has moved from one Service to another
				both := slices.Concat(list, is.endpoints)
				slices.SortFunc(both, netip.AddrPort.Compare)
				out[f] = both
				continue
			}
			out[f] = is.endpoints
		}
	}
	return out
}

// DoneLeftOut records that the connections that the last LeftOut or Stale listed are deleted.
func (t *Tracker) DoneLeftOut() {
	t.clientsWait = false
	for _, is := range t.leftOut {
		if is.revision <= t.looked {
			is.frontends = nil
		}
		t.clientsWait = t.clientsWait || is.frontends != nil
	}
}

// isUnanswered reports whether a connection never had an answer from an endpoint that is left out.
func (s *Stale) isUnanswered(e *entry, nodePortAddrs map[netip.Addr]bool) bool {
	if !e.tcp || e.answered {
		return false
	}
	at := Frontend{Addr: e.Dst.Addr(), Port: e.Dst.Port(), Family: state.FamilyOf(e.Dst.Addr())}
	list, ok := s.unanswered[at]
	if !ok && nodePortAddrs[e.Dst.Addr()] {
		at.Addr = netip.Addr{}
		list, ok = s.unanswered[at]
	}
	if is, found := s.unansweredRanges.at(Frontend{Addr: e.Dst.Addr(), Port: e.Dst.Port()}); !ok && found {
		return contains(s.unanswered[is], e.atFirstPort(is.Port).Reply)
	}
	return contains(list, e.Reply)
}

// cleanUnanswered deletes such connections of a family, and returns how many there were. It reads the whole table once.
func (c *Cleaner) cleanUnanswered(s *Stale, family state.Family, addrs map[netip.Addr]bool) (int, error) {
	var keys [][]byte
	err := c.table.dumpUnanswered(family, func(e *entry) {
		if s.isUnanswered(e, addrs) {
			keys = append(keys, append([]byte(nil), e.key...))
		}
	})
	n := 0
	if len(keys) > 0 {
		var removeErr error
		n, removeErr = c.table.remove(family, keys)
		err = errors.Join(err, removeErr)
	}
	if err != nil {
		err = fmt.Errorf("delete %v connections without an answer to endpoints that are left out: %w; their clients go on trying "+
			"these endpoints, until a later attempt succeeds or they give up", family, err)
	}
	return n, err
}

// dumpUnanswered calls fn for the flows of a family that had no reply.
func (k *kernel) dumpUnanswered(family state.Family, fn func(*entry)) error {
	var e entry
	err := k.read(func(r *request) { r.unanswered(family) }, func(a nlmsg.Attributes) {
		if e.parse(a) {
			fn(&e)
		}
	})
	if errors.Is(err, errInterrupted) {
		return nil // what was found is deleted; clients of the others repeat their packets, and those are found later
	}
	return err
}

// unanswered asks for the flows of a family that had no reply.
func (r *request) unanswered(family state.Family) {
	message := r.begin(msgGet, unix.NLM_F_DUMP, family)
	r.Uint32(attrStatus, 0)
	r.Uint32(attrStatusMask, statusSeenReply)
	r.End(message)
}
