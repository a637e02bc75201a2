package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// reach records which endpoints a port has.
type reach struct {
	anywhere bool // some endpoint takes connections, on any node
	local    bool // the Local pool has an endpoint
}

func (p *Planner) reach(port *Port) reach {
	return reach{
		anywhere: len(port.Cluster) > 0 || len(port.Local) > 0 || p.choose(0).some,
		local:    len(port.Local) > 0,
	}
}

// unserved decides what happens to packets that no endpoint takes. Without any endpoint, the client gets an error at
// once. When only other nodes have endpoints, the client times out, because its next try may go through one of those
// nodes.
func (r reach) unserved(policy Policy) Unserved {
	switch {
	case !r.anywhere:
		return Reject
	case policy == ClusterPolicy || r.local:
		return Served
	}
	return Drop
}

// fillTemplate lists the frontends that have an address, in the order of their kinds. The frontends of the ports of a
// family differ only in Port and Unserved.
func (p *Planner) fillTemplate(out *Service, family state.Family) {
	p.template = p.template[:0]
	for _, a := range p.svc.ClusterIPs {
		if state.FamilyOf(a) == family {
			p.template = append(p.template, p.internal(a))
		}
	}
	// An address that is both an external IP and a load balancer IP is one frontend. The source ranges of the load
	// balancer hold for it.
	balanced, unserved := setOf(p.svc.LoadBalancerIPs), 0
	for _, a := range p.svc.ExternalIPs {
		switch {
		case state.FamilyOf(a) != family || p.hasClusterIP(a) || balanced.has(a):
		case p.servesExternal(a):
			p.template = append(p.template, p.external(ExternalIP, a))
		default:
			unserved++
		}
	}
	if unserved > 0 {
		out.Problems = append(out.Problems, state.Problem{
			Kind: "Service", Object: p.svc.Name, Field: ExternalIP.Field(),
			Reason: fmt.Sprintf("%d of %d addresses are outside of --external-ip-cidrs; they are not served", unserved, len(p.svc.ExternalIPs)),
		})
	}
	p.addLoadBalancers(out, family)
}

func (p *Planner) servesExternal(a netip.Addr) bool {
	return slices.ContainsFunc(p.env.ExternalIPs, func(r netip.Prefix) bool { return r.Contains(a) })
}

// addrSet is a list of addresses that is searched often.
type addrSet struct {
	list []netip.Addr
	set  map[netip.Addr]struct{} // of a long list
}

func setOf(list []netip.Addr) addrSet {
	s := addrSet{list: list}
	if len(list) > fewPorts {
		s.set = make(map[netip.Addr]struct{}, len(list))
		for _, a := range list {
			s.set[a] = struct{}{}
		}
	}
	return s
}

func (s *addrSet) has(a netip.Addr) bool {
	if s.set == nil {
		return slices.Contains(s.list, a)
	}
	_, found := s.set[a]
	return found
}

func (p *Planner) addLoadBalancers(out *Service, family state.Family) {
	first := len(p.template)
	for _, a := range p.svc.LoadBalancerIPs {
		if state.FamilyOf(a) == family && !p.hasClusterIP(a) {
			p.template = append(p.template, p.external(LoadBalancer, a))
		}
	}
	if first == len(p.template) || len(p.svc.SourceRanges) == 0 {
		return
	}
	f := p.sourceFilter(family)
	if f.problem != "" {
		out.Problems = append(out.Problems, state.Problem{
			Kind: "Service", Object: p.svc.Name, Field: "spec.loadBalancerSourceRanges", Reason: f.problem,
		})
	}
	for i := first; i < len(p.template); i++ {
		p.template[i].Firewalled, p.template[i].Sources = f.on, f.sources
	}
}

func (p *Planner) hasClusterIP(a netip.Addr) bool { return slices.Contains(p.svc.ClusterIPs, a) }

func (p *Planner) hasExternal() bool {
	return len(p.template) > 0 && p.template[len(p.template)-1].Kind != ClusterIP
}

// internal returns the frontend of a cluster IP. Pods keep their source address. Traffic from elsewhere is masqueraded
// under every policy, because endpoints may have no route back to its source.
func (p *Planner) internal(a netip.Addr) Frontend {
	fe := Frontend{Kind: ClusterIP, Addr: a, Policy: ClusterPolicy, Masquerade: MasqueradeOffCluster}
	if p.svc.InternalLocal {
		fe.Policy = LocalPolicy
	}
	return fe
}

// external returns a frontend for traffic from outside. The purpose of policy Local is that endpoints see the address
// of the client, so only traffic from the node itself is masqueraded. With policy Cluster, replies must return through
// this node, so all traffic is masqueraded.
func (p *Planner) external(kind FrontendKind, a netip.Addr) Frontend {
	if p.svc.ExternalLocal {
		return Frontend{Kind: kind, Addr: a, Policy: SourcePolicy, Masquerade: MasqueradeNode}
	}
	return Frontend{Kind: kind, Addr: a, Policy: ClusterPolicy, Masquerade: MasqueradeAlways}
}

// frontends completes the template for one port and adds the node port. It leaves out what has no room.
func (p *Planner) frontends(want *state.ServicePort) []Frontend {
	out := make([]Frontend, 0, p.room.atMost(len(p.template)+toInt(want.NodePort != 0)))
	for rest := p.template; len(rest) > 0; {
		same := sameKind(rest)
		for _, fe := range same[:p.room.frontend(same[0].Kind, len(same))] {
			fe.Port = want.Port
			if p.room.ranges(len(fe.Sources)) {
				out = append(out, fe)
			}
		}
		rest = rest[len(same):]
	}
	if want.NodePort != 0 && p.room.frontend(NodePort, 1) > 0 {
		fe := p.external(NodePort, netip.Addr{})
		fe.Port = want.NodePort
		out = append(out, fe)
	}
	if p.svc.Only != nil {
		out = slices.DeleteFunc(out, func(fe Frontend) bool {
			at := state.Place{Addr: fe.Addr, Protocol: want.Protocol, Port: fe.Port}
			_, known := slices.BinarySearchFunc(p.svc.Only, at, state.Place.Compare)
			return !known
		})
	}
	return out
}

// sameKind returns the first frontends of a list, which have the same kind.
func sameKind(list []Frontend) []Frontend {
	end := slices.IndexFunc(list, func(f Frontend) bool { return f.Kind != list[0].Kind })
	if end < 0 {
		return list
	}
	return list[:end]
}
