package plan

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// sourceFilter is what loadBalancerSourceRanges mean in one family.
type sourceFilter struct {
	on      bool
	sources []netip.Prefix // disjoint and sorted
	problem string
}

// sourceFilter decides who may use the load balancer addresses of a family. The Service has source ranges.
//
// The list holds both families, and a range says nothing about the other family. What does a dual-stack load balancer
// with only IPv4 ranges mean for IPv6? Upstream leaves IPv6 open to everyone, which is seldom what somebody means who
// restricts access. Here:
//
//   - A range that covers a whole family ("0.0.0.0/0") means everyone, as upstream has it. Everyone in one family, and
//     nothing said about the other, is everyone in the other as well.
//   - Otherwise a family without a range of its own is closed: whoever limits access and forgets a family must not find
//     it open. So that the closing is no accident either, it is reported as a Problem of the Service.
//
// A request from the node to an address of the load balancer that is bound on the node has that very address as its
// source, because the kernel routes it locally. When the ranges allow the node they therefore allow these addresses
// too, as upstream does.
func (p *Planner) sourceFilter(family state.Family) sourceFilter {
	var own []netip.Prefix
	everyone := false
	for _, r := range p.svc.SourceRanges {
		if state.FamilyOf(r.Addr()) == family {
			own = append(own, r.Masked())
			everyone = everyone || r.Bits() == 0
		}
	}
	switch {
	case everyone:
		return sourceFilter{}
	case len(own) > 0:
		return sourceFilter{on: true, sources: p.withNode(own, family)}
	case slices.ContainsFunc(p.svc.SourceRanges, func(r netip.Prefix) bool { return r.Bits() == 0 }):
		return sourceFilter{}
	}
	return sourceFilter{on: true, problem: "no range is " + family.String() + ": nobody may use the " + family.String() +
		" addresses of the load balancer; add a range of that family to allow it"}
}

// withNode adds the load balancer's own addresses if the ranges hold an address of the node, and tidies the list.
func (p *Planner) withNode(ranges []netip.Prefix, family state.Family) []netip.Prefix {
	allowed := slices.ContainsFunc(p.env.NodeAddresses, func(a netip.Addr) bool {
		return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
	})
	if allowed {
		for _, a := range p.svc.LoadBalancerIPs {
			if state.FamilyOf(a) == family {
				ranges = append(ranges, netip.PrefixFrom(a, a.BitLen()))
			}
		}
	}
	return disjoint(ranges)
}

// disjoint sorts ranges and leaves out those that lie within another. Two ranges are nested or apart, never partly
// overlapping, so looking at the last one kept is enough.
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
