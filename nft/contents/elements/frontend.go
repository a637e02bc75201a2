package elements

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// frontendSets are the sets for one kind of frontend: with an address, a range of ports, or a node port. IPVS serves no
// ranges.
type frontendSets struct {
	pools, always, node, noEndpoints, noLocalEndpoints, firewalled, ipvs, holds, fast program.SetID
}

func setsOf(fe *contents.Frontend) frontendSets {
	switch {
	case fe.EndPort != 0:
		return frontendSets{
			pools: program.RangeServices, always: program.RangeMasqueradeAlways, node: program.RangeMasqueradeNode,
			noEndpoints: program.RangeNoEndpoints, noLocalEndpoints: program.RangeNoLocalEndpoints,
			firewalled: program.RangeFirewalled, holds: program.RangeHoldsRefusals, fast: program.RangeFastPath,
		}
	case fe.Addr.IsValid():
		return frontendSets{
			pools: program.Services, always: program.MasqueradeAlways, node: program.MasqueradeNode,
			noEndpoints: program.NoEndpoints, noLocalEndpoints: program.NoLocalEndpoints, firewalled: program.Firewalled,
			ipvs: program.IPVSFrontends, holds: program.HoldsRefusals, fast: program.FastPath,
		}
	}
	return frontendSets{
		pools: program.NodePorts, always: program.MasqueradeAlwaysNodePorts, node: program.MasqueradeNodeNodePorts,
		noEndpoints: program.NoEndpointsNodePorts, noLocalEndpoints: program.NoLocalEndpointsNodePorts, ipvs: program.IPVSNodePorts,
		holds: program.HoldsRefusalsNodePorts, fast: program.FastPathNodePorts,
	}
}

// ServedIn are the sets that have a frontend that is no range if something serves it.
func ServedIn(fe *contents.Frontend) []program.SetID {
	sets := setsOf(fe)
	return []program.SetID{sets.pools, sets.ipvs}
}

// frontendRecords adds the elements of a port's frontends and of their source ranges.
func (p *identity) frontendRecords(b *ledger.Builder, f program.Family, want *contents.Port) {
	limit := uint32(0)
	if needsSources(f, want) {
		limit = program.LimitedBit
	}
	for i := range want.Frontends {
		p.frontendRecord(b, &want.Frontends[i], limit)
	}
	if limit != 0 {
		p.sourceRecords(b, f, want.Sources)
	}
}

// frontendRecord adds the elements of a frontend. The numbers of a limited one have the bits of limit.
func (p *identity) frontendRecord(b *ledger.Builder, fe *contents.Frontend, limit uint32) {
	sets := setsOf(fe)
	key := func(id program.SetID) {
		b.Begin(id)
		b.Frontend(fe.Addr, fe.Port, fe.EndPort, p.protocol)
	}
	put := func(id program.SetID) {
		key(id)
		b.End()
	}
	number, pooled := p.poolNumber(fe.Pool)
	if pooled {
		if limited(fe) {
			number |= limit
		}
		key(sets.pools)
		b.Value()
		b.Word(number)
		b.End()
	}
	if fe.IPVS {
		put(sets.ipvs)
	}
	if pooled || fe.IPVS {
		switch fe.Masquerade {
		case contents.MasqueradeAlways:
			put(sets.always)
		case contents.MasqueradeNode:
			put(sets.node)
		}
	}
	for _, extra := range []struct {
		id program.SetID
		on bool
	}{{sets.holds, fe.HoldsRefusals}, {sets.fast, fe.FastPath}} {
		if pooled && extra.on {
			put(extra.id)
		}
	}
	switch fe.Refusal {
	case program.Reject:
		put(sets.noEndpoints)
	case program.Drop:
		put(sets.noLocalEndpoints)
	}
	if limited(fe) {
		key(sets.firewalled)
		b.Value()
		b.Word(p.number<<1 | limit)
		b.End()
	}
	if fe.Addr.IsValid() {
		b.Begin(map[bool]program.SetID{true: program.ClusterIPs, false: program.ExternalIPs}[fe.ClusterIP])
		b.Addr(fe.Addr)
		b.End()
	}
}

// sourceRecords adds the elements of the port's source ranges.
func (p *identity) sourceRecords(b *ledger.Builder, f program.Family, sources []netip.Prefix) {
	for _, r := range serviceport.WithoutNested(sources, f) {
		b.Begin(program.SourceLengths)
		b.Word(program.WithLength(p.number, program.LastOfGroup(r.Bits())))
		b.End()
		b.Begin(program.AllowedSources)
		b.Word(program.WithLength(p.number, r.Bits()))
		b.Addr(r.Addr())
		b.End()
	}
}

// hairpinRecords adds the endpoints on this node. Their connections to themselves need masquerading; otherwise, the answers do not
// come back through the node.
func hairpinRecords(b *ledger.Builder, want *contents.Port) {
	put := func(a netip.Addr) {
		b.Begin(program.Hairpin)
		b.Addr(a)
		b.Addr(a)
		b.End()
	}
	for _, a := range want.Hairpin {
		put(a)
	}
	for _, list := range [][]contents.Endpoint{want.Cluster, want.Local} {
		for i := range list {
			if list[i].Local {
				put(list[i].Addr.Addr())
			}
		}
	}
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
func lengths(f program.Family, want *contents.Port) (groups program.LengthGroups) {
	if !needsSources(f, want) {
		return 0
	}
	for _, r := range want.Sources {
		if program.FamilyOf(r.Addr()) == f {
			groups |= program.GroupOf(r.Bits())
		}
	}
	return groups
}

// needsSources reports whether the program has to look for clients in the source ranges.
func needsSources(f program.Family, want *contents.Port) bool {
	return !forEveryone(want.Sources, f) && slices.ContainsFunc(want.Frontends, func(fe contents.Frontend) bool { return limited(&fe) })
}

// lengthOf is the length of the prefix that a key of allowed-sources has.
func lengthOf(key []byte) int {
	return int(binary.NativeEndian.Uint32(key) >> program.PoolBits)
}

// comment is the comment of an element of a service port.
func comment(owner string, r *ledger.Record) string {
	switch r.Set {
	case program.Dispatch:
		return string(r.Data) // the name of the chain
	case program.Pools, program.HashTables:
		return program.PoolLabel(owner, binary.NativeEndian.Uint32(r.Key))
	case program.AllowedSources:
		addr, _ := netip.AddrFromSlice(r.Key[4:])
		return program.Shorten(netip.PrefixFrom(addr, lengthOf(r.Key)).String()+" "+owner, program.MaxComment)
	case program.Endpoints, program.StickySlots, program.Addresses, program.HashSlots,
		program.MasqueradeAlways, program.MasqueradeNode, program.MasqueradeAlwaysNodePorts, program.MasqueradeNodeNodePorts,
		program.RangeMasqueradeAlways, program.RangeMasqueradeNode, program.FastPath, program.FastPathNodePorts, program.RangeFastPath:
		return ""
	}
	return program.Label(owner)
}
