package plan

import (
	"cmp"
	"slices"
)

// radixFrom is the size from which a radix sort is worth its fixed cost. A Service with thousands of endpoints is sorted
// anew at every change of one of them; comparing would cost more than all the rest of its plan together.
const radixFrom = 256

// sortMembers sorts by address, and members with the same address by slice.
func (p *Planner) sortMembers() {
	if len(p.members) >= radixFrom {
		p.radixSort()
		return
	}
	slices.SortFunc(p.members, func(a, b member) int {
		if a.hi != b.hi {
			return cmp.Compare(a.hi, b.hi)
		}
		if a.lo != b.lo {
			return cmp.Compare(a.lo, b.lo)
		}
		return cmp.Compare(a.slice, b.slice)
	})
}

// radixSort sorts byte by byte from the last one, leaving out bytes in which all addresses agree: of a Pod network two
// or three are left. It is stable, so the order of slices survives among equal addresses.
func (p *Planner) radixSort() {
	from, to := p.members, slices.Grow(p.spare[:0], len(p.members))[:len(p.members)]
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
	p.members, p.spare = from, to
}

// sortByte distributes from over to by one byte of the address.
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
