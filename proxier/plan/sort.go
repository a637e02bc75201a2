package plan

import (
	"cmp"
	"slices"
)

// radixFrom is the size from which a radix sort is faster despite its fixed cost. A Service with thousands of endpoints
// is sorted again after every change of one of them, and a sort by comparison would cost more than the rest of its
// plan.
const radixFrom = 256

// sortMembers sorts by address, and members with the same address by slice.
func (e *endpoints) sortMembers() {
	if len(e.members) >= radixFrom {
		e.radixSort()
		return
	}
	slices.SortFunc(e.members, func(a, b member) int {
		if a.hi != b.hi {
			return cmp.Compare(a.hi, b.hi)
		}
		if a.lo != b.lo {
			return cmp.Compare(a.lo, b.lo)
		}
		return cmp.Compare(a.slice, b.slice)
	})
}

// radixSort sorts byte by byte, beginning with the last byte. It skips bytes that are equal in all addresses, so a Pod
// network takes two or three rounds. The sort is stable, so equal addresses stay in the order of their slices.
func (e *endpoints) radixSort() {
	from, to := e.members, slices.Grow(e.spare[:0], len(e.members))[:len(e.members)]
	var hi, lo uint64
	for i := range from {
		hi |= from[i].hi ^ from[0].hi
		lo |= from[i].lo ^ from[0].lo
	}
	for shift := uint(0); shift < 128; shift += 8 {
		varies := lo >> shift
		if shift >= 64 {
			varies = hi >> (shift - 64)
		}
		if varies&0xff != 0 {
			sortByte(from, to, shift)
			from, to = to, from
		}
	}
	e.members, e.spare = from, to
}

// sortByte copies the members of from into to, ordered by one byte of the address.
func sortByte(from, to []member, shift uint) {
	var next [256]uint32
	for i := range from {
		next[from[i].byteAt(shift)]++
	}
	sum := uint32(0)
	for i, n := range next {
		next[i] = sum
		sum += n
	}
	for i := range from {
		k := from[i].byteAt(shift)
		to[next[k]] = from[i]
		next[k]++
	}
}

func (m *member) byteAt(shift uint) uint8 {
	if shift < 64 {
		return uint8(m.lo >> shift)
	}
	return uint8(m.hi >> (shift - 64))
}
