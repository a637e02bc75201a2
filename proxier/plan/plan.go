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
	// MaxEjected is the largest part of a pool that is left out because it is silent, in percent.
	MaxEjected int
	// Health has the endpoints of the next Service that are not good.
	Health state.Health
	// Watched tells that somebody watches the endpoints of the next Service, so that its plan has Choices.
	Watched bool
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
	levels     []flags             // of the current port, see topology
	watched    bool                // the plan has Choices
	localBad   map[netip.Addr]bool // ready addresses on this node: whether they are bad at each port so far
	names      []string            // of the ports; the second family reuses them
	named      namedPorts

	given map[string]struct{} // the same as names, for a Service with many ports
}

// Plan decides what one Service becomes. The result shares no memory with the Planner. Equal input gives an equal
// result.
func (p *Planner) Plan(svc *state.Service, list []*state.Slice, env *Environment) Service {
	p.env, p.svc, p.slices = env, svc, list[:min(len(list), maxSlices)]
	p.names = p.names[:0]
	out := Service{Name: svc.Name, Outliers: svc.Outliers}
	p.watched = p.Watched || len(p.Health) > 0 || slices.ContainsFunc(p.slices, func(sl *state.Slice) bool { return sl.Backup })
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
	out.Choices = sortChoices(out.Choices)
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
	p.localBad = nil
	p.named.fill(p.svc.Ports, p.slices)
	for i := range p.svc.Ports {
		p.room.ports--
		frontends := p.frontends(&p.svc.Ports[i])
		name := p.portName(i)
		if len(frontends) > 0 {
			out.Ports = append(out.Ports, p.port(out, name, i, frontends, family))
		}
	}
	if out.HealthCheck != nil {
		out.HealthCheck.count(family, p.localGood())
	}
}

// port plans one Service port in one family.
func (p *Planner) port(out *Service, name string, index int, frontends []Frontend, family state.Family) Port {
	want := &p.svc.Ports[index]
	p.fillCandidates(index)
	p.judge(want.Protocol, family)
	port := Port{
		Family:    family,
		Name:      name,
		Protocol:  want.Protocol,
		Affinity:  p.svc.Affinity,
		Balancing: p.svc.Balancing,
	}
	external := want.NodePort != 0 || p.hasExternal()
	var cluster, near selection
	if external || !p.svc.InternalLocal {
		cluster = p.choose(0)
		port.Cluster = p.pool(family, cluster)
	}
	if p.svc.InternalLocal || external && p.svc.ExternalLocal {
		near = p.choose(local)
		port.Local = p.pool(family, near)
	}
	p.keep(&port)
	p.room.slots(&port, p.Slots)
	r := p.reach(&port)
	holds := p.holdsRefusals(want.Protocol)
	for i := range frontends {
		frontends[i].Unserved = r.unserved(frontends[i].Policy)
		policy := frontends[i].Policy
		frontends[i].HoldsRefusals = holds && (policy != LocalPolicy && p.several(cluster) || policy != ClusterPolicy && p.several(near))
	}
	port.Frontends = frontends
	if p.watched {
		out.Choices = p.addChoices(out.Choices, want.Protocol, family, cluster, near)
	}
	return port
}

// holdsRefusals reports whether the Service wants refusals to be held back.
func (p *Planner) holdsRefusals(protocol state.Protocol) bool {
	return protocol == state.TCP && p.svc.Outliers.Refusals && p.svc.Outliers.Mode == state.OutlierEject
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
