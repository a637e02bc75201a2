package plan

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Planner plans Services one after the other. From call to call it keeps only its buffers, so a plan costs only the
// memory of its result. The zero value is ready. Each goroutine needs a Planner of its own.
type Planner struct {
	// Limits bound the next plans. The zero value allows everything.
	Limits Limits
	// Choose knows which endpoints are good; nil: all of them are.
	Choose Chooser
	// Slots counts slots; nil: nobody does.
	Slots Slots

	env    *Environment
	svc    *state.Service
	slices []*state.Slice

	members    []member    // endpoints of the current family, sorted by address
	spare      []member    // the second buffer of the radix sort
	candidates []candidate // endpoints of the current port, sorted by address and port
	numbers    []uint16    // port number of the current port in each slice; 0: the slice does not serve the port
	template   []Frontend  // frontends that have an address; equal for all ports of the current family
	room       room
	refused    bool     // no endpoint of a pool of the current port is chosen
	names      []string // of the ports; the second family reuses them
	named      namedPorts

	given map[string]struct{} // the same as names, for a Service with many ports
}

// Chooser chooses among the endpoints of a pool by what is known about them at this time.
type Chooser interface {
	// Choose returns the endpoints that get new connections, with their weights. It may return the list that it got, and
	// change that.
	Choose(svc *state.Service, protocol state.Protocol, pool []Endpoint) []Endpoint
	// Dead reports whether an endpoint cannot serve the flows that it has.
	Dead(svc *state.Service, protocol state.Protocol, at netip.AddrPort) bool
}

// Plan decides what one Service becomes. The result shares no memory with the Planner. Equal input gives an equal
// result.
func (p *Planner) Plan(svc *state.Service, list []*state.Slice, env *Environment) Service {
	p.env, p.svc, p.slices = env, svc, list[:min(len(list), maxSlices)]
	p.names = p.names[:0]
	out := Service{Name: svc.Name, Outliers: svc.Outliers}
	if svc.HealthCheckNodePort != 0 {
		out.HealthCheck = &HealthCheck{NodePort: svc.HealthCheckNodePort}
	}
	ipv4 := env.IPv4 && hasFamily(svc.ClusterIPs, state.IPv4)
	ipv6 := env.IPv6 && hasFamily(svc.ClusterIPs, state.IPv6)
	families := toInt(ipv4) + toInt(ipv6)
	p.room.open(p.Limits, svc, families)
	if families > 0 {
		out.Ports = make([]Port, 0, p.room.atMost(len(svc.Ports)*families))
	}
	if ipv4 {
		p.family(&out, state.IPv4)
	}
	if ipv6 {
		p.family(&out, state.IPv6)
	}
	if out.HealthCheck != nil {
		out.HealthCheck.fill(ipv4, ipv6)
	}
	p.room.report(&out, len(list))
	p.env, p.svc, p.slices, p.given = nil, nil, nil, nil
	clear(p.names)
	return out
}

// hasFamily reports whether a Service exists in a family. The API server gives a cluster IP to every family of a
// Service.
func hasFamily(clusterIPs []netip.Addr, family state.Family) bool {
	return slices.ContainsFunc(clusterIPs, func(a netip.Addr) bool { return state.FamilyOf(a) == family })
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// family plans all ports of the Service in one family.
func (p *Planner) family(out *Service, family state.Family) {
	p.collect(family)
	p.fillTemplate(out, family)
	if out.HealthCheck != nil {
		out.HealthCheck.count(family, p.localReady())
	}
	p.named.fill(p.svc.Ports, p.slices)
	for i := range p.svc.Ports {
		p.room.ports--
		frontends := p.frontends(&p.svc.Ports[i])
		name := p.portName(i)
		if len(frontends) > 0 {
			out.Ports = append(out.Ports, p.port(name, i, frontends, family))
		}
	}
}

// port plans one Service port in one family.
func (p *Planner) port(name string, index int, frontends []Frontend, family state.Family) Port {
	want := &p.svc.Ports[index]
	p.fillCandidates(index)
	p.refused = false
	port := Port{
		Family:    family,
		Name:      name,
		Protocol:  want.Protocol,
		Affinity:  p.svc.Affinity,
		Balancing: p.svc.Balancing,
	}
	external := want.NodePort != 0 || p.hasExternal()
	var several choices
	if external || !p.svc.InternalLocal {
		pool := p.pool(family, p.choose(p.topology()))
		several.cluster = len(pool) > 1
		port.Cluster = p.good(want.Protocol, pool)
	}
	if p.svc.InternalLocal || external && p.svc.ExternalLocal {
		pool := p.pool(family, p.choose(local))
		several.local = len(pool) > 1
		port.Local = p.good(want.Protocol, pool)
	}
	if want.Protocol == state.UDP {
		port.Serving = p.serving(family)
		p.dropDead(&port)
	}
	p.room.slots(&port, p.Slots)
	r := p.reach(&port)
	for i := range frontends {
		frontends[i].Unserved = r.unserved(frontends[i].Policy)
		frontends[i].HoldsRefusals = p.holdsRefusals(want.Protocol) && several.of(frontends[i].Policy)
	}
	port.Frontends = frontends
	return port
}

// choices records which pools have several endpoints, bad ones included. An endpoint that has just been left out may still
// refuse a connection that it got before.
type choices struct{ cluster, local bool }

// of reports whether a pool that a policy may use has several endpoints.
func (c choices) of(policy Policy) bool {
	return policy != LocalPolicy && c.cluster || policy != ClusterPolicy && c.local
}

// holdsRefusals reports whether the Service wants refusals to be held back.
func (p *Planner) holdsRefusals(protocol state.Protocol) bool {
	return protocol == state.TCP && p.svc.Outliers.Refusals && p.svc.Outliers.Mode == state.OutlierEject
}

// good chooses the endpoints of a pool that get new connections.
func (p *Planner) good(protocol state.Protocol, pool []Endpoint) []Endpoint {
	if len(pool) == 0 {
		return pool
	}
	if p.Choose == nil {
		return WithoutBackups(pool)
	}
	chosen := p.Choose.Choose(p.svc, protocol, pool)
	p.refused = p.refused || len(chosen) == 0
	return chosen
}

// WithoutBackups returns the endpoints of a pool that are no backup; all of them if each is one.
func WithoutBackups(pool []Endpoint) []Endpoint {
	primaries := 0
	for i := range pool {
		primaries += toInt(!pool[i].Backup)
	}
	if primaries == 0 || primaries == len(pool) {
		return pool
	}
	return slices.DeleteFunc(pool, func(e Endpoint) bool { return e.Backup })
}

// dropDead leaves dead endpoints out of Serving, so that their flows go elsewhere. One that gets new flows stays.
func (p *Planner) dropDead(port *Port) {
	if p.Choose == nil {
		return
	}
	gets := func(pool []Endpoint, at netip.AddrPort) bool {
		_, found := slices.BinarySearchFunc(pool, at, func(e Endpoint, a netip.AddrPort) int { return e.Addr.Compare(a) })
		return found
	}
	port.Serving = slices.DeleteFunc(port.Serving, func(at netip.AddrPort) bool {
		return p.Choose.Dead(p.svc, port.Protocol, at) && !gets(port.Cluster, at) && !gets(port.Local, at)
	})
}

// count sets the number of ready local endpoints of a family.
func (h *HealthCheck) count(family state.Family, n int) {
	if family == state.IPv4 {
		h.LocalIPv4 = n
	} else {
		h.LocalIPv6 = n
	}
}

// fill gives the family in which the Service does not exist the count of the other one. Load balancers ask either address
// of a dual-stack node about a Service of one family.
func (h *HealthCheck) fill(ipv4, ipv6 bool) {
	switch {
	case ipv4 && !ipv6:
		h.LocalIPv6 = h.LocalIPv4
	case ipv6 && !ipv4:
		h.LocalIPv4 = h.LocalIPv6
	}
}
