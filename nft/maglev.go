package nft

import (
	"hash/fnv"
	"net/netip"
	"slices"
)

// Tables for consistent hashing are filled by the method of Maglev (Eisenbud et al., NSDI 2016, section 3.4; the
// kernel's IPVS scheduler mh does the same): every endpoint has a permutation of the slots that depends on nothing but
// its address, and the endpoints take turns to claim the next slot of theirs that is free. When an endpoint goes, its
// slots are shared out, and next to no other slot changes hands.

// maglevSizes are the sizes of tables. They are prime, as the permutations need, and few, as every size is a class.
var maglevSizes = [...]uint32{1021, 4093, 16381, 65521}

// slotsEach is how many slots an endpoint has at least on average, as far as the largest table goes: the more, the more
// even the shares, and the fewer other slots change hands.
const slotsEach = 400

func maglevSize(endpoints int) uint32 {
	for _, size := range maglevSizes {
		if size >= uint32(endpoints)*slotsEach {
			return size
		}
	}
	return maglevSizes[len(maglevSizes)-1]
}

// permutation walks the slots of a table in an endpoint's own order.
type permutation struct{ next, skip, size uint32 }

func newPermutation(addr netip.AddrPort, size uint32) permutation {
	text, _ := addr.MarshalBinary() // cannot fail
	h := fnv.New64a()
	_, _ = h.Write(text) // cannot fail
	sum := h.Sum64()
	// The two halves of one 64-bit hash; a multiplication spreads the bits that FNV leaves alike for like addresses.
	sum *= 0x9e3779b97f4a7c15
	sum ^= sum >> 29
	return permutation{next: uint32(sum) % size, skip: uint32(sum>>32)%(size-1) + 1, size: size}
}

func (p *permutation) step() uint32 {
	slot := p.next
	p.next = (p.next + p.skip) % p.size
	return slot
}

// maglev fills a table: the endpoint of each slot. An endpoint claims as many slots in its turn as it has shares.
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

// seatedBy lists the members of a table, in order of their slots.
func seatedBy(table []netip.AddrPort) []member {
	out := make([]member, len(table))
	for slot, addr := range table {
		out[slot] = newMember(addr, uint32(slot))
	}
	return out
}

// place seats endpoints exactly as a table says. It sorts the table.
func place(old, table []member) (members []member, changes []slotChange) {
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
			changes = append(changes, slotChange{uint32(slot), from.addr(), to.addr()})
		}
	}
	slices.SortFunc(table, compareMembers)
	return table, changes
}
