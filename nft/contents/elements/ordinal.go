package elements

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/ledger"
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
	last uint32 // number
}

func compareOrdinal(o ordinal, addr netip.AddrPort) int { return o.addr.Compare(addr) }

// update gives numbers to new endpoints.
func (l *ordinals) update(want *contents.Port) {
	old := l.list
	l.list = nil
	if want.Affinity > 0 {
		l.list = unionOfPools(want)
		l.assign(old)
	}
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
		l.list[i].n = contents.NextNumber(&l.last, 0, program.MaxOrdinals, func(n uint32) bool { return used[n] })
		used[l.list[i].n] = true
	}
}

// records are the tokens, in their order.
func (l *ordinals) records(p *identity) (out ledger.Records) {
	order := make([]uint64, 0, len(l.list))
	for i := range l.list {
		order = append(order, uint64(l.list[i].n)<<32|uint64(i))
	}
	slices.Sort(order)
	var b program.Builder
	for _, i := range order {
		o := &l.list[uint32(i)]
		for pool, in := range o.inPools {
			if !in {
				continue
			}
			b.Arena = b.Arena[:0]
			b.Word(p.token(o.n, pool))
			b.Addr(o.addr.Addr())
			if o.addr.Port() != 0 {
				b.Port(o.addr.Port())
			}
			out = out.Append(ledger.Record{Set: o.set(), Key: b.Arena[:4], Data: b.Arena[4:]})
		}
	}
	return out
}

// set is the map that has the token of the endpoint. Connections to an endpoint without a port keep their port.
func (o ordinal) set() program.SetID {
	if o.addr.Port() == 0 {
		return program.StickyAddresses
	}
	return program.StickyEndpoints
}
