package plan

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// template has the frontends of a Service in one family that have an address, by their kinds. Those of its ports differ only
// in Port and Refusal.
type template struct {
	env    *Environment
	svc    *state.Service
	kinds  [NodePort][]Frontend
	port   []Frontend // of the current port
	family state.Family
}

// fill lists the frontends of a family.
func (t *template) fill(out *Service, family state.Family) {
	t.family = family
	for kind := range t.kinds {
		t.kinds[kind] = t.kinds[kind][:0]
	}
	for _, a := range t.svc.ClusterIPs {
		if state.FamilyOf(a) == family {
			t.add(t.internal(a))
		}
	}
	if len(t.svc.ExternalIPs)+len(t.svc.LoadBalancerIPs) == 0 {
		return
	}
	// An address that is both an external IP and a load balancer IP is one frontend. The source ranges of the load
	// balancer hold for it.
	kinds, unserved := map[netip.Addr]FrontendKind{}, 0
	for _, a := range t.svc.LoadBalancerIPs {
		kinds[a] = LoadBalancer
	}
	for _, a := range t.svc.ClusterIPs {
		kinds[a] = ClusterIP
	}
	for _, a := range t.svc.ExternalIPs {
		switch _, other := kinds[a]; {
		case other || state.FamilyOf(a) != family:
		case slices.ContainsFunc(t.env.ExternalIPs, func(r netip.Prefix) bool { return r.Contains(a) }):
			t.add(t.external(ExternalIP, a))
		default:
			unserved++
		}
	}
	if unserved > 0 {
		why := "outside of --external-ip-cidrs"
		if len(t.env.ExternalIPs) == 0 {
			why = `forbidden by --external-ip-cidrs="" or by the feature gate AllowServiceExternalIPs=false`
		}
		out.report(ExternalIP.Field(), "%d of %d addresses are %s; they are not served", unserved, len(t.svc.ExternalIPs), why)
	}
	t.addLoadBalancers(out, family, kinds)
}

func (t *template) add(fe Frontend) { t.kinds[fe.Kind] = append(t.kinds[fe.Kind], fe) }

func (t *template) addLoadBalancers(out *Service, family state.Family, kinds map[netip.Addr]FrontendKind) {
	for _, a := range t.svc.LoadBalancerIPs {
		if state.FamilyOf(a) == family && kinds[a] == LoadBalancer {
			t.add(t.external(LoadBalancer, a))
		}
	}
	balancers := t.kinds[LoadBalancer]
	if len(balancers) == 0 || len(t.svc.SourceRanges) == 0 && !t.svc.NoSource {
		return
	}
	f := filterOf(t.svc, t.env, family)
	if f.problem != "" {
		out.report("spec.loadBalancerSourceRanges", "%s", f.problem)
	}
	for i := range balancers {
		balancers[i].Firewalled, balancers[i].Sources = f.on, f.sources
	}
}

func (t *template) hasExternal() bool { return len(t.kinds[ExternalIP])+len(t.kinds[LoadBalancer]) > 0 }

// internal returns the frontend of a cluster IP. Pods keep their source address. Traffic from elsewhere is masqueraded
// under every policy, because endpoints may have no route back to its source.
func (t *template) internal(a netip.Addr) Frontend {
	fe := frontend(ClusterIP, a, serviceport.ClusterPool, serviceport.NoMasquerade)
	fe.ClusterIP = true
	if t.svc.InternalLocal {
		fe.Pool = serviceport.LocalPool
	}
	return fe
}

// external returns a frontend for traffic from outside. The purpose of policy Local is that endpoints see the address
// of the client, so only traffic from the node itself is masqueraded. With policy Cluster, replies must return through
// this node, so all traffic is masqueraded, unless the Service says that they do so anyway.
func (t *template) external(kind FrontendKind, a netip.Addr) Frontend {
	if t.svc.ExternalLocal {
		return frontend(kind, a, serviceport.BySource, serviceport.MasqueradeNode)
	}
	fe := frontend(kind, a, serviceport.ClusterPool, serviceport.MasqueradeAlways)
	if t.svc.KeepsSources {
		fe.Masquerade = serviceport.MasqueradeNode
	}
	return fe
}

func frontend(kind FrontendKind, a netip.Addr, pool serviceport.Pool, m serviceport.Masquerade) Frontend {
	return Frontend{Kind: kind, Frontend: serviceport.Frontend{Addr: a, Pool: pool, Masquerade: m}}
}

// frontends completes the template for one port and adds the node port, which a range does not have. It leaves out what has
// no room, and does not look at it: a Service can have 16,384 ports, and as many addresses.
func (t *template) frontends(want *state.ServicePort, r *room) []Frontend {
	t.port = t.port[:0]
	ranged := 0
	if want.EndPort != 0 {
		ranged = rangeCost(t.family)
	}
	for kind, list := range t.kinds {
		for _, fe := range list[:r.take(FrontendKind(kind), len(list), ranged)] {
			if r.sources(len(fe.Sources)) {
				fe.Port, fe.EndPort = want.Port, want.EndPort
				t.port = append(t.port, fe)
			}
		}
	}
	if want.NodePort != 0 && ranged == 0 && r.take(NodePort, 1, 0) > 0 {
		fe := t.external(NodePort, netip.Addr{})
		fe.Port = want.NodePort
		t.port = append(t.port, fe)
	}
	return slices.Clone(t.port)
}

// sourceFilter is the meaning of loadBalancerSourceRanges in one family.
type sourceFilter struct {
	on      bool
	sources []netip.Prefix // disjoint and sorted
	problem string
}

// filterOf decides which clients may use the load balancer addresses of a family. It is called for Services that
// have source ranges.
//
// The list holds both families, and the API does not define what a dual-stack load balancer with only IPv4 ranges means
// for IPv6. Upstream leaves IPv6 open to everyone. A user who restricts access seldom wants that, so this function
// decides:
//
//   - A range that covers a whole family ("0.0.0.0/0") allows everyone, as in upstream. If the other family has no range,
//     it is open as well.
//   - Otherwise, a family without a range is closed, and the Service gets a Problem that says so. A user who restricts
//     access and forgets a family must not find it open.
//
// A connection from the node to a load balancer address that is configured on the node has that address as its source,
// because the kernel routes it locally. So ranges that allow the node also allow these addresses, as in upstream.
func filterOf(svc *state.Service, env *Environment, family state.Family) sourceFilter {
	if svc.NoSource {
		return sourceFilter{on: true} // the source of the object has reported it
	}
	own := serviceport.WithoutNested(svc.SourceRanges, family)
	switch {
	case len(own) > 0 && own[0].Bits() == 0:
		return sourceFilter{}
	case len(own) > 0:
		return sourceFilter{on: true, sources: withNode(own, svc, env, family)}
	case slices.ContainsFunc(svc.SourceRanges, func(r netip.Prefix) bool { return r.Bits() == 0 }):
		return sourceFilter{}
	}
	return sourceFilter{on: true, problem: "no range is " + family.Version() + ": nobody may use the " + family.Version() +
		" addresses of the load balancer; add a range of that family to allow it"}
}

// withNode adds the load balancer's own addresses if the ranges contain an address of the node. The result is disjoint.
func withNode(ranges []netip.Prefix, svc *state.Service, env *Environment, family state.Family) []netip.Prefix {
	allowed := slices.ContainsFunc(env.NodeAddresses, func(a netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
	})
	if !allowed {
		return ranges
	}
	for _, a := range svc.LoadBalancerIPs {
		ranges = append(ranges, netip.PrefixFrom(a, a.BitLen()))
	}
	return serviceport.WithoutNested(ranges, family)
}
