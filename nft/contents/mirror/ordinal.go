package mirror

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// ordinal is an endpoint's number within a service port with session affinity. The endpoint keeps it as long as it is
// in at least one of the two pools. The ordinal and the number of the service port are a token. The kernel remembers
// each client's token in the affinity map, and the map sticky-endpoints has the endpoint of each token.
type ordinal struct {
	addr    netip.AddrPort
	n       uint32
	inPools [2]bool // cluster, local
}

// ordinals are the endpoints of a service port with session affinity, sorted by address.
type ordinals struct {
	list []ordinal
	next uint32
}

// identity is what the elements of a service port have in common.
type identity struct {
	name     string
	was      string // the name in the kernel, while the port gets another one
	number   uint32 // 0: there was none left; then the port has no pools
	protocol uint8
}

// pool is the number of the cluster pool (0) or the local pool (1).
func (p *identity) pool(i int) uint32 { return p.number<<1 | uint32(i) }

// token is the number for an endpoint of a pool.
func (p *identity) token(n uint32, pool int) uint32 { return n<<program.PoolBits | p.pool(pool) }

func compareOrdinal(o ordinal, addr netip.AddrPort) int { return o.addr.Compare(addr) }

// of is the number of an endpoint, which must have one.
func (l *ordinals) of(addr netip.AddrPort) uint32 {
	i, _ := slices.BinarySearchFunc(l.list, addr, compareOrdinal)
	return l.list[i].n
}

// update gives numbers to new endpoints and writes the tokens that change.
func (l *ordinals) update(w program.Writer, p *identity, want *contents.Port) {
	old := l.list
	l.list = nil
	if want.Affinity > 0 {
		l.list = unionOfPools(want)
		l.assign(old)
	}
	l.write(w, p, old)
}

// unionOfPools lists the endpoints of both pools, sorted and without numbers.
func unionOfPools(want *contents.Port) []ordinal {
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
func sizeOfUnion(a, b []contents.Endpoint) int {
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

// assign keeps the numbers of endpoints that stay. A new endpoint gets the number that was freed longest ago.
// Otherwise, it would get all clients of the endpoint that went last.
func (l *ordinals) assign(old []ordinal) {
	var used [program.MaxOrdinals]bool
	// The token with the ordinal 0 may be as small as a priority that IPv4 forwarding sets, which the program does not clear.
	used[0] = len(l.list) < program.MaxOrdinals
	var fresh []int
	for i := range l.list {
		o := &l.list[i]
		j, found := slices.BinarySearchFunc(old, o.addr, compareOrdinal)
		if !found {
			fresh = append(fresh, i)
			continue
		}
		o.n = old[j].n
		used[o.n] = true
	}
	for _, i := range fresh {
		for used[l.next%program.MaxOrdinals] {
			l.next++
		}
		l.list[i].n = l.next % program.MaxOrdinals
		used[l.list[i].n] = true
		l.next++
	}
}

// write writes the differences between the old and the new tokens. Both lists are sorted.
func (l *ordinals) write(w program.Writer, p *identity, old []ordinal) {
	next := l.list
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
			if gone.inPools[pool] && (!come.inPools[pool] || p.was != "") {
				w.Remove(gone.set(), p.tokenElement(w, gone, pool))
			}
			if come.inPools[pool] && (!gone.inPools[pool] || p.was != "") {
				w.Insert(come.set(), p.tokenElement(w, come, pool))
			}
		}
	}
}

func (p *identity) tokenElement(w program.Writer, o ordinal, pool int) program.Element {
	return w.Element(program.Label(p.name), func(b *program.Builder) { b.Word(p.token(o.n, pool)) },
		func(b *program.Builder) {
			b.Addr(o.addr.Addr())
			if o.addr.Port() != 0 {
				b.Port(o.addr.Port())
			}
		})
}

// set is the map that has the token of the endpoint. Connections to an endpoint without a port keep their port.
func (o ordinal) set() program.SetID {
	if o.addr.Port() == 0 {
		return program.StickyAddresses
	}
	return program.StickyEndpoints
}
