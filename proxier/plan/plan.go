package plan

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Planner plans Services one after the other. From call to call it keeps only its buffers, so a plan costs only the
// memory of its result. The zero value is ready. Each goroutine needs a Planner of its own.
type Planner struct {
	// Limits bound the next plans. The zero value allows everything.
	Limits Limits
	// MaxEjected is the largest part of a pool that is ejected because it is silent, in percent.
	MaxEjected int
	// Health has the endpoints of the next Service that are not good.
	Health state.Health
	// Watched tells that somebody watches the endpoints of the next Service, so that its plan has Choices.
	Watched bool
	// Slots counts slots; nil: nobody does.
	Slots Slots

	svc        *state.Service
	endpoints  endpoints  // of the current family
	candidates candidates // of the current port
	template   template   // of the current family
	names      givenNames
	room       room
	watched    bool // the plan has Choices
}

// Plan decides what one Service becomes. The result shares no memory with the Planner. Equal input gives an equal
// result.
func (p *Planner) Plan(svc *state.Service, list []*state.Slice, env *Environment) Service {
	p.open(svc, list, env)
	defer p.close()
	out := Service{Name: svc.Name, Created: svc.Created, Outliers: svc.Outliers}
	p.watched = p.Watched || len(p.Health) > 0 || slices.ContainsFunc(p.endpoints.slices, func(sl *state.Slice) bool { return sl.Backup })
	if svc.HealthCheckNodePort != 0 {
		out.HealthCheck = &HealthCheck{NodePort: svc.HealthCheckNodePort}
	}
	families := make([]state.Family, 0, 2)
	if env.IPv4 && hasFamily(svc, state.IPv4) {
		families = append(families, state.IPv4)
	}
	if env.IPv6 && hasFamily(svc, state.IPv6) {
		families = append(families, state.IPv6)
	}
	p.room.open(p.Limits, svc, len(families))
	out.Ports = make([]Port, 0, p.room.atMost(len(svc.Ports)*len(families)))
	for i, family := range families {
		p.family(&out, family)
		if out.HealthCheck != nil {
			out.HealthCheck.count(family, &p.endpoints, i == 0)
		}
	}
	p.room.report(&out, len(list))
	if len(out.Choices) == maxChoices {
		out.report("spec.ports", "only the first %d endpoints of all ports are checked and watched; the others count as good", maxChoices)
	}
	out.Choices, out.PodCIDRs = sortChoices(out.Choices), p.endpoints.podCIDRs
	return out
}

// open takes over what is planned next.
func (p *Planner) open(svc *state.Service, list []*state.Slice, env *Environment) {
	p.svc, p.candidates.allDown = svc, svc.AllDown
	p.endpoints.env, p.endpoints.slices, p.endpoints.podCIDRs = env, list[:min(len(list), maxSlices)], Evidence{}
	p.template.env, p.template.svc = env, svc
}

// close leaves nothing but the buffers.
func (p *Planner) close() {
	p.svc = nil
	p.endpoints.env, p.endpoints.slices, p.endpoints.named, p.endpoints.last = nil, nil, namedPorts{}, nil
	p.template.env, p.template.svc = nil, nil
	p.names.forget()
}

// hasFamily reports whether a Service exists in a family. The API server gives a cluster IP to every family of a
// Service. A balancer without Kubernetes has only the addresses that somebody wrote.
func hasFamily(svc *state.Service, family state.Family) bool {
	list := svc.ClusterIPs
	if len(list) == 0 {
		list = svc.LoadBalancerIPs
	}
	return slices.ContainsFunc(list, func(a netip.Addr) bool { return state.FamilyOf(a) == family })
}

// family plans all ports of the Service in one family.
func (p *Planner) family(out *Service, family state.Family) {
	p.room.cut.Elements += p.endpoints.collect(family, p.svc, p.Limits.members())
	if n := p.endpoints.misplaced; n > 0 {
		out.report("spec.selector", "%d endpoints (%s) have addresses in a ServiceCIDR, where nobody takes connections but Services, and "+
			"are not used: name the endpoints of that Service instead", n, family.Version())
	}
	p.template.fill(out, family)
	for i := range p.svc.Ports {
		p.room.ports--
		frontends := p.template.frontends(&p.svc.Ports[i], &p.room)
		if len(frontends) > 0 {
			out.Ports = append(out.Ports, p.port(out, p.names.of(p.svc, i), i, frontends, family))
		}
	}
}

// port plans one Service port in one family.
func (p *Planner) port(out *Service, name string, index int, frontends []Frontend, family state.Family) Port {
	want := &p.svc.Ports[index]
	p.serve(index, family)
	p.reportRange(out, want)
	port := Port{
		Family:    family,
		Name:      name,
		Protocol:  want.Protocol,
		Affinity:  p.svc.Affinity,
		Balancing: p.svc.Balancing,
		SlowPath:  p.slowPath(want.Protocol),
		Down:      len(p.Health) > 0 && p.candidates.down(),
	}
	if port.Down {
		out.report(state.FieldEndpoints, "all endpoints of %s fail their checks or do not answer (on-all-down is %s)", name, p.svc.AllDown)
	}
	external := want.NodePort != 0 || p.template.hasExternal()
	var cluster, near selection
	if external || !p.svc.InternalLocal {
		cluster = p.candidates.choose(0)
		port.Cluster = p.candidates.pool(family, cluster, &p.room)
		// If replies return through this node, endpoints do not get a reply to a connection of their own that leads back to
		// themselves, wherever they are.
		for i := range port.Cluster {
			port.Cluster[i].Local = port.Cluster[i].Local || p.svc.KeepsSources
		}
	}
	if p.svc.InternalLocal || external && p.svc.ExternalLocal {
		near = p.candidates.choose(local)
		port.Local = p.candidates.pool(family, near, &p.room)
	}
	p.keep(&port)
	port.Frontends = frontends // before the slots are counted: those of a range are its own
	p.room.slots(&port, p.Slots)
	p.answer(&port, cluster, near)
	if p.watched {
		out.Choices = p.candidates.addChoices(out.Choices, want.Protocol, family, cluster, near)
	}
	return port
}

// slowPath returns why connections to a port do not take the fast path; "": they do, as far as planning knows.
func (p *Planner) slowPath(protocol state.Protocol) string {
	switch {
	case p.endpoints.env.SlowPath != "":
		return p.endpoints.env.SlowPath
	case p.svc.SlowPath:
		return "the annotation " + state.AnnotationPrefix + "fast-path is off"
	case protocol == state.SCTP:
		return "the kernel has no fast path for SCTP"
	}
	return ""
}

// serve lists the endpoints of a port and judges them.
func (p *Planner) serve(index int, family state.Family) {
	p.endpoints.fill(&p.candidates, p.svc.Ports, index, &p.room)
	p.candidates.findLevels()
	if len(p.Health) > 0 {
		p.candidates.judge(p.Health, p.MaxEjected, p.svc.Ports[index].Protocol, family)
	}
	if p.svc.HealthCheckNodePort != 0 {
		p.endpoints.note(family, p.candidates.list, len(p.Health) > 0)
	}
}

// keep finds the endpoints that keep the flows that they have. UDP flows stay with endpoints that still serve. Policy, topology
// and weight decide only about new connections, so they do not matter here. TCP connections stay with all endpoints that the
// slices have, ready or not. If a limit leaves out endpoints, nobody knows which ones are gone.
func (p *Planner) keep(port *Port) {
	switch {
	case port.Protocol == state.UDP:
		port.Serving = p.candidates.keeping(flowing, port.Family, &p.room)
	case port.Protocol == state.TCP && p.svc.OnRemoval == state.ResetThose && p.room.cut.Elements == 0:
		if list := p.candidates.keeping(0, port.Family, &p.room); p.room.cut.Elements == 0 {
			port.Serving, port.Resets = list, true
		}
	}
}

// answer decides what the frontends of a port do with connections: whether an endpoint takes them, and whether a refusal is held
// back.
func (p *Planner) answer(port *Port, cluster, near selection) {
	anywhere := len(port.Cluster) > 0 || len(port.Local) > 0 || p.candidates.choose(0).some
	holds := port.Protocol == state.TCP && p.svc.Outliers.Refusals && p.svc.Outliers.Mode == state.OutlierEject
	for i := range port.Frontends {
		f := &port.Frontends[i]
		f.Refusal = p.unserved(port, f.Pool, anywhere)
		f.Good = f.Pool == serviceport.ClusterPool && cluster.good() || f.Pool != serviceport.ClusterPool && near.good()
		f.HoldsRefusals = holds &&
			(f.Pool != serviceport.LocalPool && p.candidates.several(cluster) || f.Pool != serviceport.ClusterPool && p.candidates.several(near))
	}
}

// unserved decides what happens to packets that no endpoint takes. Without any endpoint, the client gets an error at
// once. When only other nodes have endpoints, the client times out, because its next try may go through one of those
// nodes.
func (p *Planner) unserved(port *Port, policy serviceport.Pool, anywhere bool) serviceport.Refusal {
	switch {
	case p.endpoints.env.Draining:
		return serviceport.Drop
	case !anywhere:
		return serviceport.Reject
	case policy == serviceport.ClusterPool || len(port.Local) > 0:
		return serviceport.NoRefusal
	}
	return serviceport.Drop
}

// reportRange adds Problems for what a range of ports cannot have. A range is translated without its ports: an endpoint gets a
// packet at the port to which the client sent it.
func (p *Planner) reportRange(out *Service, want *state.ServicePort) {
	if want.EndPort == 0 {
		return
	}
	text := state.PortsText(want.Port, want.EndPort)
	if want.NodePort != 0 {
		out.report(NodePort.Field(), "node port %d is not served: a node port stands for one port, and not for the range %s",
			want.NodePort, text)
	}
	if n := p.candidates.shifted; n > 0 {
		out.report("spec.ports.targetPort", "%d endpoints are not used: connections to the range %s keep their port, so the target "+
			"port must be %d, the first one of the range", n, text, want.Port)
	}
}

// count notes the ready endpoints of a family. Those of the first family hold for the other one, too: load balancers ask either
// address of a dual-stack node about a Service of one family.
func (h *HealthCheck) count(family state.Family, e *endpoints, first bool) {
	if first || family == state.IPv4 {
		h.LocalIPv4, h.ElsewhereIPv4 = e.localGood(), e.elsewhere
	}
	if first || family == state.IPv6 {
		h.LocalIPv6, h.ElsewhereIPv6 = e.localGood(), e.elsewhere
	}
}
