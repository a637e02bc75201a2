package dataplane

import (
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// served is what the dataplane remembers of a Service: enough to remove what is no longer wanted.
type served struct{ ports []servedPort }

// servedPort is one port of a Service as the engines have it.
type servedPort struct {
	contents.PortID
	protocol state.Protocol
	number   uint16 // of its first frontend; with family and protocol, few Services have it twice
	count    portCount
}

// newServed is a Service as planned. Its ports are not counted yet.
func newServed(planned *plan.Service) *served {
	s := &served{ports: make([]servedPort, len(planned.Ports))}
	for i := range planned.Ports {
		p := &planned.Ports[i]
		s.ports[i] = servedPort{PortID: idOf(p), protocol: p.Protocol}
		if len(p.Frontends) > 0 {
			s.ports[i].number = p.Frontends[0].Port
		}
	}
	return s
}

// formerNames are the names that ports had which get another one, by the new one. A port whose name is new had that of a
// port which is gone, if protocol and number are the same.
func (s *served) formerNames(next *served) map[contents.PortID]string {
	if s == nil || len(s.except(next)) == 0 {
		return nil
	}
	type place struct {
		family program.Family
		state.Protocol
		number uint16
	}
	at := func(p *servedPort) place { return place{p.Family, p.protocol, p.number} }
	gone, former := map[place]string{}, map[contents.PortID]string{}
	for _, p := range s.except(next) {
		gone[at(&p)] = p.Name
	}
	for _, p := range next.except(s) {
		if name, ok := gone[at(&p)]; ok {
			former[p.PortID] = name
			delete(gone, at(&p)) // a port has one successor
		}
	}
	return former
}

// except lists the ports that are not among the next ones.
func (s *served) except(next *served) []servedPort {
	if next == nil {
		return s.ports
	}
	if slices.EqualFunc(s.ports, next.ports, func(a, b servedPort) bool { return a.PortID == b.PortID }) {
		return nil // nearly every change
	}
	keep := make(map[contents.PortID]bool, len(next.ports))
	for _, p := range next.ports {
		keep[p.PortID] = true
	}
	return slices.DeleteFunc(slices.Clone(s.ports), func(p servedPort) bool { return keep[p.PortID] })
}
