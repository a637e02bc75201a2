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
	portKey
	protocol state.Protocol
	number   uint16 // of its first frontend; with family and protocol, few Services have it twice
	count    portCount
}

// portKey identifies a service port in one family.
type portKey struct {
	family program.Family
	name   string
}

func (k portKey) String() string { return k.family.String() + " " + k.name }

func (k portKey) id() contents.PortID { return contents.PortID{Family: k.family, Name: k.name} }

// newServed is a Service as planned. Its ports are not counted yet.
func newServed(planned *plan.Service) *served {
	s := &served{ports: make([]servedPort, len(planned.Ports))}
	for i := range planned.Ports {
		p := &planned.Ports[i]
		s.ports[i] = servedPort{portKey: portKey{family(p.Family), p.Name}, protocol: p.Protocol}
		if len(p.Frontends) > 0 {
			s.ports[i].number = p.Frontends[0].Port
		}
	}
	return s
}

// formerNames are the names that ports had which get another one, by the new one. A port whose name is new had that of a
// port which is gone, if protocol and number are the same.
func (s *served) formerNames(next *served) map[portKey]string {
	if s == nil || len(s.except(next)) == 0 {
		return nil
	}
	type place struct {
		portKey // without a name
		state.Protocol
		number uint16
	}
	at := func(p *servedPort) place { return place{portKey{family: p.family}, p.protocol, p.number} }
	gone, former := map[place]string{}, map[portKey]string{}
	for _, p := range s.except(next) {
		gone[at(&p)] = p.name
	}
	for _, p := range next.except(s) {
		if name, ok := gone[at(&p)]; ok {
			former[p.portKey] = name
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
	if slices.EqualFunc(s.ports, next.ports, func(a, b servedPort) bool { return a.portKey == b.portKey }) {
		return nil // nearly every change
	}
	keep := make(map[portKey]bool, len(next.ports))
	for _, p := range next.ports {
		keep[p.portKey] = true
	}
	return slices.DeleteFunc(slices.Clone(s.ports), func(p servedPort) bool { return keep[p.portKey] })
}
