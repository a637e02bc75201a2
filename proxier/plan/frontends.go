package plan

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// reach records which endpoints a port has.
type reach struct {
	anywhere bool // some endpoint takes connections, on any node and whatever topology says
	local    bool // the Local pool has an endpoint
}

func (p *Planner) reach(port *Port) reach {
	return reach{
		anywhere: len(port.Cluster) > 0 || len(port.Local) > 0 || p.count(ready) > 0 || p.count(draining) > 0,
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
	for _, a := range p.svc.ExternalIPs {
		// An address that is both an external IP and a load balancer IP is one frontend. The source ranges of the load
		// balancer hold for it.
		if state.FamilyOf(a) == family && !p.hasClusterIP(a) && !slices.Contains(p.svc.LoadBalancerIPs, a) {
			p.template = append(p.template, p.external(ExternalIP, a))
		}
	}
	p.addLoadBalancers(out, family)
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

// frontends completes the template for one port and adds the node port.
func (p *Planner) frontends(want *state.ServicePort, r reach) []Frontend {
	out := make([]Frontend, len(p.template), len(p.template)+toInt(want.NodePort != 0))
	copy(out, p.template)
	for i := range out {
		out[i].Port = want.Port
	}
	if want.NodePort != 0 {
		fe := p.external(NodePort, netip.Addr{})
		fe.Port = want.NodePort
		out = append(out, fe)
	}
	for i := range out {
		out[i].Unserved = r.unserved(out[i].Policy)
	}
	return out
}
