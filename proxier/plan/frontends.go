package plan

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// template has the frontends of a Service in one family that have an address, in the order of their kinds. Those of its
// ports differ only in Port and Unserved.
type template struct {
	env  *Environment
	svc  *state.Service
	list []Frontend
}

// fill lists the frontends of a family.
func (t *template) fill(out *Service, family state.Family) {
	t.list = t.list[:0]
	for _, a := range t.svc.ClusterIPs {
		if state.FamilyOf(a) == family {
			t.list = append(t.list, t.internal(a))
		}
	}
	// An address that is both an external IP and a load balancer IP is one frontend. The source ranges of the load
	// balancer hold for it.
	balanced, unserved := map[netip.Addr]bool{}, 0
	if len(t.svc.ExternalIPs) > 0 {
		for _, a := range t.svc.LoadBalancerIPs {
			balanced[a] = true
		}
	}
	for _, a := range t.svc.ExternalIPs {
		switch {
		case state.FamilyOf(a) != family || t.hasClusterIP(a) || balanced[a]:
		case slices.ContainsFunc(t.env.ExternalIPs, func(r netip.Prefix) bool { return r.Contains(a) }):
			t.list = append(t.list, t.external(ExternalIP, a))
		default:
			unserved++
		}
	}
	if unserved > 0 {
		out.report(ExternalIP.Field(), "%d of %d addresses are outside of --external-ip-cidrs; they are not served",
			unserved, len(t.svc.ExternalIPs))
	}
	t.addLoadBalancers(out, family)
}

func (t *template) addLoadBalancers(out *Service, family state.Family) {
	first := len(t.list)
	for _, a := range t.svc.LoadBalancerIPs {
		if state.FamilyOf(a) == family && !t.hasClusterIP(a) {
			t.list = append(t.list, t.external(LoadBalancer, a))
		}
	}
	if first == len(t.list) || len(t.svc.SourceRanges) == 0 {
		return
	}
	f := filterOf(t.svc, t.env, family)
	if f.problem != "" {
		out.report("spec.loadBalancerSourceRanges", "%s", f.problem)
	}
	for i := first; i < len(t.list); i++ {
		t.list[i].Firewalled, t.list[i].Sources = f.on, f.sources
	}
}

func (t *template) hasClusterIP(a netip.Addr) bool { return slices.Contains(t.svc.ClusterIPs, a) }

func (t *template) hasExternal() bool {
	return len(t.list) > 0 && t.list[len(t.list)-1].Kind != ClusterIP
}

// internal returns the frontend of a cluster IP. Pods keep their source address. Traffic from elsewhere is masqueraded
// under every policy, because endpoints may have no route back to its source.
func (t *template) internal(a netip.Addr) Frontend {
	fe := Frontend{Kind: ClusterIP, Addr: a, Policy: ClusterPolicy, Masquerade: MasqueradeOffCluster}
	if t.svc.InternalLocal {
		fe.Policy = LocalPolicy
	}
	return fe
}

// external returns a frontend for traffic from outside. The purpose of policy Local is that endpoints see the address
// of the client, so only traffic from the node itself is masqueraded. With policy Cluster, replies must return through
// this node, so all traffic is masqueraded, unless the Service says that they do so anyway.
func (t *template) external(kind FrontendKind, a netip.Addr) Frontend {
	if t.svc.ExternalLocal {
		return Frontend{Kind: kind, Addr: a, Policy: SourcePolicy, Masquerade: MasqueradeNode}
	}
	fe := Frontend{Kind: kind, Addr: a, Policy: ClusterPolicy, Masquerade: MasqueradeAlways}
	if t.svc.KeepsSources {
		fe.Masquerade = MasqueradeNode
	}
	return fe
}

// frontends completes the template for one port and adds the node port, which a range does not have. It leaves out what has
// no room.
func (t *template) frontends(want *state.ServicePort, r *room) []Frontend {
	out := make([]Frontend, 0, r.atMost(len(t.list)+toInt(want.NodePort != 0)))
	for i := range t.list {
		if r.frontend(t.list[i].Kind) && r.ranges(len(t.list[i].Sources)) {
			fe := t.list[i]
			fe.Port, fe.EndPort = want.Port, want.EndPort
			out = append(out, fe)
		}
	}
	if want.NodePort != 0 && want.EndPort == 0 && r.frontend(NodePort) {
		fe := t.external(NodePort, netip.Addr{})
		fe.Port = want.NodePort
		out = append(out, fe)
	}
	if t.svc.Only != nil {
		out = slices.DeleteFunc(out, func(fe Frontend) bool {
			at := state.Place{Addr: fe.Addr, Protocol: want.Protocol, Port: fe.Port}
			_, known := slices.BinarySearchFunc(t.svc.Only, at, state.Place.Compare)
			return !known
		})
	}
	return out
}
