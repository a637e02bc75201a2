package conntrack

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TCP connections that never had an answer from an endpoint that a plan has left out may be deleted: neither end has a
// connection yet, and the next packet of the client begins another one, to an endpoint of that time.
//
// IPVS has its own entry for a connection that it carries, and sends the client's next packet elsewhere when the endpoint
// has weight 0 (net.ipv4.vs.expire_nodest_conn). While connection tracking has the connection as well, IPVS drops that
// packet first, and a client that repeats its packets after 1, 2 and 4 seconds loses 4 seconds.

// leftOuts has the TCP endpoints that plans leave out. Those that accept connections are not among them: to look for connections
// without an answer, the kernel walks over its whole table.
type leftOuts struct {
	services map[state.Name]*leftOut
	wait     bool     // connections to some of them may still have to be deleted
	looking  []string // the namespaces whose connections are being deleted
}

// leftOut is what is known of one Service.
type leftOut struct {
	endpoints []netip.AddrPort // sorted
	frontends []Frontend       // where their clients send to; nil: their connections are deleted
	revision  uint64           // when an endpoint came to them
}

// set records which endpoints a plan leaves out; nil: the Service is gone. It counts the revision up if there is another one.
func (l *leftOuts) set(n state.Name, p *plan.Service, revision *uint64) {
	list, is := leftOutOf(p), l.services[n]
	if len(list) == 0 {
		delete(l.services, n)
		return
	}
	if is == nil {
		is = &leftOut{}
		l.services[n] = is
	}
	comes := func(at netip.AddrPort) bool { return !contains(is.endpoints, at) }
	if slices.ContainsFunc(list, comes) {
		*revision++
		is.frontends, is.revision = nil, *revision
		for i := range p.Ports {
			port := &p.Ports[i]
			if port.Protocol != state.TCP {
				continue
			}
			for j := range port.Frontends {
				is.frontends = append(is.frontends, frontendOf(port, &port.Frontends[j]))
			}
		}
		l.wait = true
	}
	is.endpoints = list
}

func leftOutOf(p *plan.Service) (list []netip.AddrPort) {
	if p == nil {
		return nil
	}
	for i := range p.Choices {
		if c := &p.Choices[i]; c.Use == plan.Ejected && c.Protocol == state.TCP && !c.Accepts {
			list = append(list, c.At)
		}
	}
	return list
}

// waiting lists the namespaces of endpoints whose connections without an answer are to be deleted.
func (l *leftOuts) waiting() (namespaces []string) {
	if !l.wait {
		return nil
	}
	for n, is := range l.services {
		if is.frontends != nil && !slices.Contains(namespaces, n.Namespace) {
			namespaces = append(namespaces, n.Namespace)
		}
	}
	l.wait = namespaces != nil
	return namespaces
}

// unanswered lists these endpoints of some namespaces by frontend. The lists are sorted.
func (l *leftOuts) unanswered(namespaces []string) map[Frontend][]netip.AddrPort {
	out := map[Frontend][]netip.AddrPort{}
	for n, is := range l.services {
		if !slices.Contains(namespaces, n.Namespace) {
			continue
		}
		for _, f := range is.frontends {
			list := is.endpoints
			if before := out[f]; before != nil { // the frontend has moved from one Service to another
				list = slices.Concat(before, list)
				slices.SortFunc(list, netip.AddrPort.Compare)
			}
			out[f] = list
		}
	}
	return out
}

// done records that the connections are deleted that unanswered listed last, at a revision.
func (l *leftOuts) done(revision uint64) {
	for n, is := range l.services {
		if is.revision <= revision && slices.Contains(l.looking, n.Namespace) {
			is.frontends = nil
		}
	}
}
