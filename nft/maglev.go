package nft

import (
	"hash/fnv"
	"net/netip"
	"slices"
)

// Tables for consistent hashing are filled by the method of Maglev (Eisenbud et al., NSDI 2016, section 3.4), as in the
// kernel's IPVS scheduler mh. Every endpoint has a permutation of the slots that depends only on its address. The
// endpoints take turns, and each one claims the next free slot of its permutation. When an endpoint goes, the others
// share its slots, and very few other slots change.

// maglevSizes are the sizes of tables. The permutations need prime numbers. There are few sizes, because each one is a
// class.
var maglevSizes = [...]uint32{1021, 4093, 16381, 65521}

// slotsEach is how many slots an endpoint has on average, at least, until the largest table is full. With more slots
// the shares are more even, and fewer other slots change.
const slotsEach = 400

func maglevSize(endpoints int) uint32 {
	for _, size := range maglevSizes {
		if size >= uint32(endpoints)*slotsEach {
			return size
		}
	}
	return maglevSizes[len(maglevSizes)-1]
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

// maglev fills a table: the endpoint in each slot. In its turn, an endpoint claims as many slots as its share.
func maglev(endpoints []Endpoint) []netip.AddrPort {
	size := maglevSize(len(endpoints))
	table := make([]netip.AddrPort, size)
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
				claim(table, &orders[i], endpoints[i].Addr)
				filled++
			}
		}
	}
	return table
}

func claim(table []netip.AddrPort, order *permutation, addr netip.AddrPort) {
	for {
		if slot := order.step(); !table[slot].IsValid() {
			table[slot] = addr
			return
		}
	}
}

// membersOf lists the members that a table has, in order of their slots.
func membersOf(table []netip.AddrPort) []member {
	out := make([]member, len(table))
	for slot, addr := range table {
		out[slot] = newMember(addr, uint32(slot))
	}
	return out
}

// assignFixed gives each slot the endpoint that the table has there. It sorts the table.
func assignFixed(old, table []member) (members []member, changes []slotChange) {
	before := make([]member, max(len(old), len(table)))
	for _, m := range old {
		before[m.slot] = m
	}
	for slot := range before {
		from, to := &before[slot], &member{}
		if slot < len(table) {
			to = &table[slot]
		}
		if !from.same(to) {
			changes = append(changes, slotChange{slot: uint32(slot), from: from.addr(), to: to.addr()})
		}
	}
	slices.SortFunc(table, compareMembers)
	return table, changes
}
