package mirror

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// frontendSets are the sets for one kind of frontend: with an address, a range of ports, or a node port. IPVS serves no
// ranges.
type frontendSets struct {
	pools, always, node, noEndpoints, noLocalEndpoints, firewalled, ipvs, holds program.SetID
}

func setsOf(fe *contents.Frontend) frontendSets {
	switch {
	case fe.EndPort != 0:
		return frontendSets{
			pools: program.RangeServices, always: program.RangeMasqueradeAlways, node: program.RangeMasqueradeNode,
			noEndpoints: program.RangeNoEndpoints, noLocalEndpoints: program.RangeNoLocalEndpoints,
			firewalled: program.RangeFirewalled, holds: program.RangeHoldsRefusals,
		}
	case fe.Addr.IsValid():
		return frontendSets{
			pools: program.Services, always: program.MasqueradeAlways, node: program.MasqueradeNode,
			noEndpoints: program.NoEndpoints, noLocalEndpoints: program.NoLocalEndpoints, firewalled: program.Firewalled,
			ipvs: program.IPVSFrontends, holds: program.HoldsRefusals,
		}
	}
	return frontendSets{
		pools: program.NodePorts, always: program.MasqueradeAlwaysNodePorts, node: program.MasqueradeNodeNodePorts,
		noEndpoints: program.NoEndpointsNodePorts, noLocalEndpoints: program.NoLocalEndpointsNodePorts, ipvs: program.IPVSNodePorts,
		holds: program.HoldsRefusalsNodePorts,
	}
}

// ServedIn are the sets that have a frontend that is no range if something serves it.
func ServedIn(fe *contents.Frontend) []program.SetID {
	sets := setsOf(fe)
	return []program.SetID{sets.pools, sets.ipvs}
}

// frontends are those of a service port, and the ranges of clients that may use the firewalled ones.
type frontends struct {
	list    []contents.Frontend
	sources []netip.Prefix
}

// elements lists the elements of frontends and of their source ranges, sorted by set and key, each once.
func (s *frontends) elements(w program.Writer, p *identity) []program.Placed {
	out := make([]program.Placed, 0, 2*len(s.list)+2*len(s.sources))
	limit := uint32(0)
	if s.limited(w.Family) {
		limit = program.LimitedBit
	}
	for i := range s.list {
		out = p.appendFrontend(w, out, &s.list[i], limit)
	}
	if limit != 0 {
		out = p.appendSources(w, out, s.sources)
	}
	return w.Sorted(out)
}

// appendFrontend adds the elements of a frontend. The numbers of a limited one have the bits of limit.
func (p *identity) appendFrontend(w program.Writer, out []program.Placed, fe *contents.Frontend, limit uint32) []program.Placed {
	sets := setsOf(fe)
	label := program.Label(p.name)
	put := func(id program.SetID, label string, data func(*program.Builder)) {
		out = append(out, program.Placed{Set: id, Element: w.Element(label, func(b *program.Builder) { b.Frontend(fe.Addr, fe.Port, fe.EndPort, p.protocol) }, data)})
	}
	number, pooled := p.poolNumber(fe.Pool)
	if pooled && limited(fe) {
		number |= limit
	}
	if pooled {
		put(sets.pools, label, func(b *program.Builder) { b.Word(number) })
	}
	if fe.IPVS {
		put(sets.ipvs, label, nil)
	}
	if pooled || fe.IPVS {
		switch fe.Masquerade {
		case contents.MasqueradeAlways:
			put(sets.always, "", nil)
		case contents.MasqueradeNode:
			put(sets.node, "", nil)
		}
	}
	if pooled && fe.HoldsRefusals {
		put(sets.holds, label, nil)
	}
	switch fe.Refusal {
	case program.Reject:
		put(sets.noEndpoints, label, nil)
	case program.Drop:
		put(sets.noLocalEndpoints, label, nil)
	}
	if limited(fe) {
		put(sets.firewalled, label, func(b *program.Builder) { b.Word(p.number<<1 | limit) })
	}
	return out
}

// appendSources adds the elements of the port's source ranges.
func (p *identity) appendSources(w program.Writer, out []program.Placed, sources []netip.Prefix) []program.Placed {
	name := program.Label(p.name)
	for _, r := range program.WithoutNested(sources, w.Family) {
		group, number := program.WithLength(p.number, program.LastOfGroup(r.Bits())), program.WithLength(p.number, r.Bits())
		label := program.Shorten(r.String()+" "+p.name, program.MaxComment)
		out = append(out,
			program.Placed{Set: program.SourceLengths, Element: w.Element(name, func(b *program.Builder) { b.Word(group) }, nil)},
			program.Placed{Set: program.AllowedSources, Element: w.Element(label, func(b *program.Builder) { b.Word(number); b.Addr(r.Addr()) }, nil)})
	}
	return out
}

// poolNumber is the data of a frontend's element: the number of the pool that serves it. If the client's address
// decides, it is the number of the cluster pool with a bit that says so. It reports false for a frontend without a
// pool.
func (p *identity) poolNumber(choice program.PoolChoice) (uint32, bool) {
	switch choice {
	case program.ClusterPool:
		return p.pool(0), true
	case program.LocalPool:
		return p.pool(1), true
	case program.BySource:
		return p.pool(0) | program.BySourceBit, true
	}
	return 0, false
}

// limited reports whether source ranges hold for the frontend. They do not hold for node ports.
func limited(fe *contents.Frontend) bool { return fe.Firewalled && fe.Addr.IsValid() }

// forEveryone reports whether one of the ranges covers the whole family. Then there is nothing to look up.
func forEveryone(sources []netip.Prefix, f program.Family) bool {
	return slices.ContainsFunc(sources, func(r netip.Prefix) bool { return r.Bits() == 0 && program.FamilyOf(r.Addr()) == f })
}

// lengths are the groups of prefix lengths that the source ranges need.
func (s *frontends) lengths(f program.Family) (groups program.LengthGroups) {
	if !s.limited(f) {
		return 0
	}
	for _, r := range s.sources {
		if program.FamilyOf(r.Addr()) == f {
			groups |= program.GroupOf(r.Bits())
		}
	}
	return groups
}

// limited reports whether the program has to look for clients in the source ranges.
func (s *frontends) limited(f program.Family) bool {
	return !forEveryone(s.sources, f) && slices.ContainsFunc(s.list, func(fe contents.Frontend) bool { return limited(&fe) })
}
