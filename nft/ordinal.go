package nft

import (
	"net/netip"
	"slices"
)

// ordinal is an endpoint's number within a service port with session affinity. The endpoint keeps it as long as it is
// in at least one of the two pools. The ordinal and the number of the service port are a token. The kernel remembers
// each client's token in the affinity map, and the map sticky-endpoints has the endpoint of each token.
type ordinal struct {
	addr    netip.AddrPort
	n       uint32
	inPools [2]bool // cluster, local
}

// token is the number for an endpoint of a pool.
func (p *port) token(n uint32, pool int) uint32 {
	return n<<poolBits | p.number<<1 | uint32(pool)
}

func compareOrdinal(o ordinal, addr netip.AddrPort) int { return o.addr.Compare(addr) }

// ordinal is the number of an endpoint, which must have one.
func (p *port) ordinal(addr netip.AddrPort) uint32 {
	i, _ := slices.BinarySearchFunc(p.ordinals, addr, compareOrdinal)
	return p.ordinals[i].n
}

// updateOrdinals gives numbers to new endpoints and writes the tokens that change.
func (tb *table) updateOrdinals(t *Transaction, p *port, want *Port) {
	old := p.ordinals
	p.ordinals = nil
	if want.Affinity > 0 {
		p.ordinals = unionOfPools(want)
		p.assignOrdinals(old)
	}
	tb.writeTokens(t, p, old)
}

// unionOfPools lists the endpoints of both pools, sorted and without numbers.
func unionOfPools(want *Port) []ordinal {
	list := make([]ordinal, 0, len(want.Cluster))
	for _, e := range want.Cluster {
		list = append(list, ordinal{addr: e.Addr, inPools: [2]bool{true, false}})
	}
	for _, e := range want.Local {
		i, found := slices.BinarySearchFunc(list, e.Addr, compareOrdinal)
		if !found {
			list = slices.Insert(list, i, ordinal{addr: e.Addr})
		}
		list[i].inPools[1] = true
	}
	return list
}

// sizeOfUnion counts the endpoints that are in at least one of two sorted lists.
func sizeOfUnion(a, b []Endpoint) int {
	n := 0
	for ; len(a) > 0 && len(b) > 0; n++ {
		order := a[0].Addr.Compare(b[0].Addr)
		if order <= 0 {
			a = a[1:]
		}
		if order >= 0 {
			b = b[1:]
		}
	}
	return n + len(a) + len(b)
}

// assignOrdinals keeps the numbers of endpoints that stay. A new endpoint gets the number that was freed longest ago.
// Otherwise, it would get all clients of the endpoint that went last.
func (p *port) assignOrdinals(old []ordinal) {
	var used [maxOrdinals]bool
	var fresh []int
	for i := range p.ordinals {
		o := &p.ordinals[i]
		j, found := slices.BinarySearchFunc(old, o.addr, compareOrdinal)
		if !found {
			fresh = append(fresh, i)
			continue
		}
		o.n = old[j].n
		used[o.n] = true
	}
	for _, i := range fresh {
		for used[p.nextOrdinal%maxOrdinals] {
			p.nextOrdinal++
		}
		p.ordinals[i].n = p.nextOrdinal % maxOrdinals
		used[p.ordinals[i].n] = true
		p.nextOrdinal++
	}
}

// writeTokens writes the differences between the old and the new tokens. Both lists are sorted.
func (tb *table) writeTokens(t *Transaction, p *port, old []ordinal) {
	next := p.ordinals
	for len(old) > 0 || len(next) > 0 {
		var gone, come ordinal
		switch {
		case len(next) == 0 || len(old) > 0 && old[0].addr.Compare(next[0].addr) < 0:
			gone, old = old[0], old[1:]
		case len(old) == 0 || old[0].addr != next[0].addr:
			come, next = next[0], next[1:]
		default:
			gone, come, old, next = old[0], next[0], old[1:], next[1:]
		}
		for pool := range gone.inPools {
			if gone.inPools[pool] && !come.inPools[pool] {
				t.del(tb.family, idStickyEndpoints, tb.tokenElement(t, p, gone, pool))
			}
			if come.inPools[pool] && !gone.inPools[pool] {
				t.add(tb.family, idStickyEndpoints, tb.tokenElement(t, p, come, pool))
			}
		}
	}
}

func (tb *table) tokenElement(t *Transaction, p *port, o ordinal, pool int) element {
	return t.element(Label(p.name), func(b *builder) { b.word(p.token(o.n, pool)) },
		func(b *builder) { b.addr(o.addr.Addr()); b.port(o.addr.Port()) })
}
