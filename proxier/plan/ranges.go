package plan

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

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
	var own []netip.Prefix
	everyone := false
	for _, r := range svc.SourceRanges {
		if state.FamilyOf(r.Addr()) == family {
			own = append(own, r.Masked())
			everyone = everyone || r.Bits() == 0
		}
	}
	switch {
	case everyone:
		return sourceFilter{}
	case len(own) > 0:
		return sourceFilter{on: true, sources: withNode(own, svc, env, family)}
	case slices.ContainsFunc(svc.SourceRanges, func(r netip.Prefix) bool { return r.Bits() == 0 }):
		return sourceFilter{}
	}
	return sourceFilter{on: true, problem: "no range is " + family.String() + ": nobody may use the " + family.String() +
		" addresses of the load balancer; add a range of that family to allow it"}
}

// withNode adds the load balancer's own addresses if the ranges contain an address of the node. The result is disjoint.
func withNode(ranges []netip.Prefix, svc *state.Service, env *Environment, family state.Family) []netip.Prefix {
	allowed := slices.ContainsFunc(env.NodeAddresses, func(a netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
	})
	if allowed {
		for _, a := range svc.LoadBalancerIPs {
			if state.FamilyOf(a) == family {
				ranges = append(ranges, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return disjoint(ranges)
}

// disjoint sorts ranges and removes those that lie within another. Two ranges never overlap in part, so it is enough to
// compare each range with the last one kept.
func disjoint(ranges []netip.Prefix) []netip.Prefix {
	slices.SortFunc(ranges, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	kept := ranges[:0]
	for _, r := range ranges {
		if len(kept) == 0 || !kept[len(kept)-1].Contains(r.Addr()) {
			kept = append(kept, r)
		}
	}
	return kept
}
