package nft

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
)

// placed is an element and the set that it belongs to.
type placed struct {
	set setID
	element
}

// frontendSets are the sets for one kind of frontend: with an address, or a node port.
type frontendSets struct {
	pools, always, node, noEndpoints, noLocalEndpoints, ipvs, holds setID
}

func setsOf(fe *Frontend) frontendSets {
	if fe.Addr.IsValid() {
		return frontendSets{
			pools: idServices, always: idMasqueradeAlways, node: idMasqueradeNode,
			noEndpoints: idNoEndpoints, noLocalEndpoints: idNoLocalEndpoints, ipvs: idIPVSFrontends,
			holds: idHoldsRefusals,
		}
	}
	return frontendSets{
		pools: idNodePorts, always: idMasqueradeAlwaysNodePorts, node: idMasqueradeNodeNodePorts,
		noEndpoints: idNoEndpointsNodePorts, noLocalEndpoints: idNoLocalEndpointsNodePorts, ipvs: idIPVSNodePorts,
		holds: idHoldsRefusalsNodePorts,
	}
}

// updateFrontends changes the port's frontends and source ranges to the wanted ones.
func (tb *table) updateFrontends(t *Transaction, p *port, want []Frontend, sources []netip.Prefix) {
	if slices.Equal(p.frontends, want) && slices.Equal(p.sources, sources) {
		return
	}
	if !t.unread {
		old := tb.frontendElements(t, p, p.frontends, p.sources)
		next := tb.frontendElements(t, p, want, sources)
		diffElements(t, tb.family, old, next)
	}
	for _, fe := range want {
		tb.countClusterIP(fe, 1)
	}
	for _, fe := range p.frontends {
		tb.countClusterIP(fe, -1)
	}
	p.frontends, p.sources = slices.Clone(want), slices.Clone(sources)
	tb.lengths |= tb.lengthsOf(want, sources)
}

func (tb *table) countClusterIP(fe Frontend, by int32) {
	if fe.ClusterIP && fe.Addr.IsValid() {
		tb.clusterIPs.change(fe.Addr, by)
	}
}

// frontendElements lists the elements of frontends and of their source ranges, sorted by set and key, each once.
func (tb *table) frontendElements(t *Transaction, p *port, frontends []Frontend, sources []netip.Prefix) []placed {
	out := make([]placed, 0, 2*len(frontends)+2*len(sources))
	limit := uint32(0)
	if tb.looksUpSources(frontends, sources) {
		limit = limitedBit
	}
	for i := range frontends {
		out = tb.appendFrontend(t, out, p, &frontends[i], limit)
	}
	if limit != 0 {
		out = tb.appendSources(t, out, p, sources)
	}
	slices.SortStableFunc(out, func(a, b placed) int { return comparePlaced(a, b, t.arena) })
	return slices.CompactFunc(out, func(a, b placed) bool { return comparePlaced(a, b, t.arena) == 0 })
}

// appendFrontend adds the elements of a frontend. The numbers of a limited one have the bits of limit.
func (tb *table) appendFrontend(t *Transaction, out []placed, p *port, fe *Frontend, limit uint32) []placed {
	sets := setsOf(fe)
	label := Label(p.name)
	put := func(id setID, label string, data func(*builder)) {
		out = append(out, placed{id, t.element(label, func(b *builder) { b.frontend(fe, p.protocol) }, data)})
	}
	number, pooled := poolNumber(p, fe.Pool)
	if pooled && fe.limited() {
		number |= limit
	}
	if pooled {
		put(sets.pools, label, func(b *builder) { b.word(number) })
	}
	if fe.IPVS {
		put(sets.ipvs, label, nil)
	}
	if pooled || fe.IPVS {
		switch fe.Masquerade {
		case MasqueradeAlways:
			put(sets.always, "", nil)
		case MasqueradeNode:
			put(sets.node, "", nil)
		}
	}
	if pooled && fe.HoldsRefusals {
		put(sets.holds, label, nil)
	}
	switch fe.Refusal {
	case Reject:
		put(sets.noEndpoints, label, nil)
	case Drop:
		put(sets.noLocalEndpoints, label, nil)
	}
	if fe.limited() {
		put(idFirewalled, label, func(b *builder) { b.word(p.number<<1 | limit) })
	}
	return out
}

// poolNumber is the data of a frontend's element: the number of the pool that serves it. If the client's address
// decides, it is the number of the cluster pool with a bit that says so. It reports false for a frontend without a
// pool.
func poolNumber(p *port, choice PoolChoice) (uint32, bool) {
	switch choice {
	case ClusterPool:
		return p.pools[0].number, true
	case LocalPool:
		return p.pools[1].number, true
	case BySource:
		return p.pools[0].number | bySourceBit, true
	}
	return 0, false
}

// frontend appends the key of a frontend.
func (b *builder) frontend(fe *Frontend, protocol uint8) {
	if fe.Addr.IsValid() {
		b.addr(fe.Addr)
	}
	b.proto(protocol)
	b.port(fe.Port)
}

func comparePlaced(a, b placed, arena []byte) int {
	if c := cmp.Compare(a.set, b.set); c != 0 {
		return c
	}
	return bytes.Compare(a.keyBytes(arena), b.keyBytes(arena))
}

// diffElements writes the changes from one sorted list to the other. An element whose data or comment changes is
// deleted and added.
func diffElements(t *Transaction, f Family, old, next []placed) {
	for len(old) > 0 || len(next) > 0 {
		order := -1
		switch {
		case len(old) == 0:
			order = 1
		case len(next) > 0:
			order = comparePlaced(old[0], next[0], t.arena)
		}
		if order == 0 && sameElement(old[0].element, next[0].element, t.arena, t.arena) {
			old, next = old[1:], next[1:]
			continue
		}
		if order <= 0 {
			t.del(f, old[0].set, old[0].element)
			old = old[1:]
		}
		if order >= 0 {
			t.add(f, next[0].set, next[0].element)
			next = next[1:]
		}
	}
}
