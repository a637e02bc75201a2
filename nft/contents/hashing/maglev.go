package hashing

import (
	"hash/fnv"
	"math"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
)

// Tables for consistent hashing are filled by the method of Maglev (Eisenbud et al., NSDI 2016, section 3.4), as in the
// kernel's IPVS scheduler mh. Every endpoint has a permutation of the slots that depends only on its address. The
// endpoints take turns, and each one claims the next free slot of its permutation. When an endpoint goes, the others
// share its slots, and very few other slots change.

// maglevSizes are the sizes of tables, and up to how many endpoints each one serves. The permutations need prime numbers.
// There are few sizes, because each one is a class, and because most clients move when the size changes. Of 1,000
// endpoints or fewer, each has at least 65 slots, so the shares are even to 1.6 %. When one endpoint goes, the others
// lose up to 2 % of their slots (TestMaglevDisruption); in smaller tables they would lose more.
var maglevSizes = [...]struct {
	slots, endpoints uint32
}{{1, 1}, {4093, 16}, {16381, 250}, {largestMaglev, math.MaxUint32}}

const largestMaglev = 65521

func Size(endpoints int) uint32 {
	for _, size := range maglevSizes {
		if uint32(endpoints) <= size.endpoints {
			return size.slots
		}
	}
	return largestMaglev
}

// permutation walks over the slots of a table in the order of one endpoint.
type permutation struct{ next, skip, size uint32 }

func newPermutation(addr netip.AddrPort, size uint32) permutation {
	text, _ := addr.MarshalBinary() // cannot fail
	h := fnv.New64a()
	_, _ = h.Write(text) // cannot fail
	sum := h.Sum64()
	// The two halves of one hash are used. FNV hashes of similar addresses are similar; the multiplication spreads
	// their bits.
	sum *= 0x9e3779b97f4a7c15
	sum ^= sum >> 29
	return permutation{next: uint32(sum) % size, skip: uint32(sum>>32)%(size-1) + 1, size: size}
}

func (p *permutation) step() uint32 {
	slot := p.next
	p.next = (p.next + p.skip) % p.size
	return slot
}

// noEndpoint marks a slot that is free.
const noEndpoint = math.MaxUint16

// maglev fills a table: the index of the endpoint in each slot. In its turn, an endpoint claims as many slots as its
// share.
func maglev(endpoints []contents.Endpoint) []uint16 {
	size := Size(len(endpoints))
	if size == 1 {
		return []uint16{0}
	}
	table := slices.Repeat([]uint16{noEndpoint}, int(size))
	orders := make([]permutation, len(endpoints))
	for i, e := range endpoints {
		orders[i] = newPermutation(e.Addr, size)
	}
	for filled := uint32(0); filled < size; {
		for i := range endpoints {
			for range max(endpoints[i].Slots, 1) {
				if filled == size {
					return table
				}
				claim(table, &orders[i], uint16(i))
				filled++
			}
		}
	}
	return table
}

func claim(table []uint16, order *permutation, endpoint uint16) {
	for {
		if slot := order.step(); table[slot] == noEndpoint {
			table[slot] = endpoint
			return
		}
	}
}

// Fill fills the table of some endpoints: the index of the endpoint in each slot.
func Fill(endpoints []contents.Endpoint) []uint16 {
	list, _ := withoutPorts(endpoints)
	return maglev(list)
}

// withoutPorts returns endpoints that differ in their addresses only, or, if they have several ports, the endpoints
// themselves. Tables are filled by these, so that a client has the same endpoint at all ports of a Service.
func withoutPorts(endpoints []contents.Endpoint) (list []contents.Endpoint, port uint16) {
	port = endpoints[0].Addr.Port()
	for i := range endpoints {
		if endpoints[i].Addr.Port() != port {
			return endpoints, 0
		}
	}
	list = slices.Clone(endpoints)
	for i := range list {
		list[i].Addr = netip.AddrPortFrom(list[i].Addr.Addr(), 0)
	}
	return list, port
}
