package dataplane

import (
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Totals count what one engine serves.
type Totals struct {
	Frontends [plan.NodePort + 1]int // by plan.FrontendKind
	Endpoints int                    // each once for every service port and family that it serves
	Pools     [maxSchedulers]int     // by the index of the scheduler; see Schedulers
}

// NoLocal counts service ports with endpoints, none of which a policy Local allows.
type NoLocal struct{ Internal, External int }

// portCount counts what the engines serve for one port. It is small, because every port has one.
type portCount struct {
	frontends  [IPVS + 1][plan.NodePort + 1]uint32
	endpoints  uint32
	family     state.Family
	engine     Engine // that counts the endpoints and the pools
	scheduler  uint8  // index in Schedulers
	pools      uint8
	noInternal bool // the internal policy leaves no endpoint
	noExternal bool
	down       bool // no endpoint is good
}

// countOf counts the endpoints of a port for IPVS if it serves a frontend of the port.
func countOf(port *plan.Port, scheduler uint8) portCount {
	c := portCount{down: port.Down, endpoints: uint32(max(len(port.Cluster), len(port.Local))), scheduler: scheduler, family: port.Family}
	for _, pool := range [][]serviceport.Endpoint{port.Cluster, port.Local} {
		c.pools += uint8(min(len(pool), 1))
	}
	for i := range port.Frontends {
		fe := &port.Frontends[i]
		engine := engineOf(fe)
		c.engine = max(c.engine, engine)
		c.frontends[engine][fe.Kind]++
		if fe.Refusal == serviceport.Drop {
			c.noInternal = c.noInternal || fe.Kind == plan.ClusterIP
			c.noExternal = c.noExternal || fe.Kind != plan.ClusterIP
		}
	}
	return c
}

// withoutRules takes out what nft would serve. IPVS may serve the rest.
func (c *portCount) withoutRules() {
	c.frontends[NFT] = [plan.NodePort + 1]uint32{}
	if c.engine == NFT {
		c.endpoints, c.pools = 0, 0
	}
}

// AllTotals are the totals of both engines, and what both leave out alike.
type AllTotals struct {
	Engines [IPVS + 1]Totals
	NoLocal [state.IPv6 + 1]NoLocal // by state.Family
	Down    int                     // frontends without a good endpoint
}

// add counts a port; a negative sign takes it out again.
func (t *AllTotals) add(c *portCount, sign int) {
	for engine := range t.Engines {
		for kind, n := range c.frontends[engine] {
			t.Engines[engine].Frontends[kind] += sign * int(n)
			if c.down {
				t.Down += sign * int(n)
			}
		}
	}
	serving := &t.Engines[c.engine]
	serving.Endpoints += sign * int(c.endpoints)
	serving.Pools[c.scheduler] += sign * int(c.pools)
	if c.noInternal {
		t.NoLocal[c.family].Internal += sign
	}
	if c.noExternal {
		t.NoLocal[c.family].External += sign
	}
}

// engineOf returns the engine that serves a frontend.
func engineOf(f *plan.Frontend) Engine {
	if f.IPVS {
		return IPVS
	}
	return NFT
}

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

// maxSchedulers is more than the number of schedulers: those of IPVS, and random.
const maxSchedulers = 24
