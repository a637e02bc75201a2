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
	pools, always, node, noEndpoints, noLocalEndpoints, ipvs setID
}

func setsOf(fe *Frontend) frontendSets {
	if fe.Addr.IsValid() {
		return frontendSets{
			pools: idServices, always: idMasqueradeAlways, node: idMasqueradeNode,
			noEndpoints: idNoEndpoints, noLocalEndpoints: idNoLocalEndpoints, ipvs: idIPVSFrontends,
		}
	}
	return frontendSets{
		pools: idNodePorts, always: idMasqueradeAlwaysNodePorts, node: idMasqueradeNodeNodePorts,
		noEndpoints: idNoEndpointsNodePorts, noLocalEndpoints: idNoLocalEndpointsNodePorts, ipvs: idIPVSNodePorts,
	}
}

// updateFrontends changes the port's frontends to the wanted ones.
func (tb *table) updateFrontends(t *Transaction, p *port, want []Frontend) {
	if slices.EqualFunc(p.frontends, want, sameFrontend) {
		return
	}
	old := tb.frontendElements(t, p, p.frontends)
	next := tb.frontendElements(t, p, want)
	diffElements(t, tb.family, old, next)
	for _, fe := range want {
		tb.countClusterIP(fe, 1)
	}
	for _, fe := range p.frontends {
		tb.countClusterIP(fe, -1)
	}
	p.frontends = slices.Clone(want)
}

func (tb *table) countClusterIP(fe Frontend, by int32) {
	if fe.ClusterIP && fe.Addr.IsValid() {
		tb.clusterIPs.change(fe.Addr, by)
	}
}

func sameFrontend(a, b Frontend) bool {
	return a.Addr == b.Addr && a.Port == b.Port && a.ClusterIP == b.ClusterIP && a.Pool == b.Pool &&
		a.Refusal == b.Refusal && a.Masquerade == b.Masquerade && a.IPVS == b.IPVS &&
		a.Firewalled == b.Firewalled && slices.Equal(a.Sources, b.Sources)
}

// frontendElements lists the elements of frontends, sorted by set and key, each once.
func (tb *table) frontendElements(t *Transaction, p *port, frontends []Frontend) []placed {
	out := make([]placed, 0, 2*len(frontends))
	for i := range frontends {
		out = tb.appendFrontend(t, out, p, &frontends[i])
	}
	slices.SortStableFunc(out, func(a, b placed) int { return comparePlaced(a, b, t.arena) })
	return slices.CompactFunc(out, func(a, b placed) bool { return comparePlaced(a, b, t.arena) == 0 })
}

func (tb *table) appendFrontend(t *Transaction, out []placed, p *port, fe *Frontend) []placed {
	sets := setsOf(fe)
	label := truncateComment(p.name)
	put := func(id setID, label string, data func(*builder)) {
		out = append(out, placed{id, t.element(label, func(b *builder) { b.frontend(fe, p.protocol) }, data)})
	}
	number, pooled := poolNumber(p, fe.Pool)
	if pooled && fe.limited() {
		number |= limitedBit
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
	switch fe.Refusal {
	case Reject:
		put(sets.noEndpoints, label, nil)
	case Drop:
		put(sets.noLocalEndpoints, label, nil)
	}
	if fe.limited() {
		put(idFirewalled, label, nil)
		for _, prefix := range withoutNested(fe.Sources, tb.family) {
			out = append(out, placed{idAllowedSources, tb.sourceElement(t, p, fe, prefix)})
		}
	}
	return out
}

// limited reports whether the frontend has source ranges. Node ports have none.
func (fe *Frontend) limited() bool { return fe.Firewalled && fe.Addr.IsValid() }

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

func (tb *table) sourceElement(t *Transaction, p *port, fe *Frontend, prefix netip.Prefix) element {
	e := t.element("", func(b *builder) { b.frontend(fe, p.protocol); b.addr(prefix.Addr()) }, nil)
	start := t.mark()
	t.frontend(fe, p.protocol)
	t.addr(lastAddr(prefix))
	e.keyEnd = t.since(start)
	return e
}

func comparePlaced(a, b placed, arena []byte) int {
	if c := cmp.Compare(a.set, b.set); c != 0 {
		return c
	}
	if c := bytes.Compare(a.keyBytes(arena), b.keyBytes(arena)); c != 0 {
		return c
	}
	return bytes.Compare(a.keyEndBytes(arena), b.keyEndBytes(arena))
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
