package mirror

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/program"
)

// poolState is one pool as the kernel has it: which endpoint is in which slot.
type poolState struct {
	number uint32 // the lower 20 bits of the scratch number
	// class is how the program draws a slot. A pool without slots has no class, and the kernel does not have it.
	class   program.Class
	classID uint32
	members []member      // sorted by address, then slot; an endpoint with several slots is in the list several times
	earlier []member      // as an earlier process left it, until the pool is set for the first time
	hash    *hashing.Pool // nil: it never had a table
}

// manyMembers is the smallest number of endpoints for which an earlier pool's memory is used again. Smaller lists cost
// little to allocate, and must not keep large memory in use.
const manyMembers = 1024

// member is a slot and its endpoint. There are hundreds of thousands of members. They have no pointers, unlike
// netip.Addr, so the garbage collector skips them.
type member struct {
	hi, lo uint64 // the address; an IPv4 address is the lower half of lo
	slot   uint32
	port   uint16
	family program.Family // 0: no endpoint
}

func newMember(addr netip.AddrPort, slot uint32) member {
	m := member{slot: slot, port: addr.Port(), family: program.FamilyOf(addr.Addr())}
	if m.family == program.IPv4 {
		b := addr.Addr().As4()
		m.lo = uint64(binary.BigEndian.Uint32(b[:]))
		return m
	}
	b := addr.Addr().As16()
	m.hi, m.lo = binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	return m
}

// addr is the endpoint; the zero AddrPort: there is none.
func (m *member) addr() netip.AddrPort {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], m.hi)
	binary.BigEndian.PutUint64(b[8:], m.lo)
	switch m.family {
	case program.IPv4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:])), m.port)
	case program.IPv6:
		return netip.AddrPortFrom(netip.AddrFrom16(b), m.port)
	}
	return netip.AddrPort{}
}

// same reports whether two members of a pool are the same endpoint.
func (m *member) same(o *member) bool {
	return m.lo == o.lo && m.hi == o.hi && m.port == o.port && m.family == o.family
}

// compare orders endpoints of one family, as netip.AddrPort.Compare does.
func (m *member) compare(o *member) int {
	return cmp.Or(cmp.Compare(m.hi, o.hi), cmp.Compare(m.lo, o.lo), cmp.Compare(m.port, o.port))
}

// assignment is the members that a pool is to have.
type assignment struct {
	members []member // sorted by slot if fixed, otherwise sorted by address and without slots
	fixed   bool     // the slots are given, for consistent hashing
}

// A pool without affinity whose class hashes has a hash table, and only its first slot in the map endpoints. A packet
// that is in the chain of another class while the class changes finds an endpoint there.
func newAssignment(c program.Class, endpoints []contents.Endpoint, spare []member) assignment {
	switch {
	case c.Hashed():
		return assignment{[]member{newMember(endpoints[0].Addr, 0)}, false}
	case c.Method.Hashes():
		return assignment{tableMembers(endpoints), true}
	}
	return assignment{expand(endpoints, spare), false}
}

// apply returns the new members of a pool and the slots that change. It takes over the memory of the assignment.
func (a assignment) apply(old []member) ([]member, []slotChange) {
	if a.fixed {
		return assignFixed(old, a.members)
	}
	return reassign(old, a.members)
}

// expand lists the endpoints, each as often as it has slots. It uses the spare memory if that is large enough.
func expand(endpoints []contents.Endpoint, spare []member) []member {
	if len(endpoints) == 0 {
		return nil
	}
	out := slices.Grow(spare[:0], len(endpoints))
	for i := range endpoints {
		m := newMember(endpoints[i].Addr, 0)
		for range max(endpoints[i].Slots, 1) {
			out = append(out, m)
		}
	}
	return out
}

// slotChange is a slot whose endpoint changes.
type slotChange struct {
	slot     uint32
	from, to netip.AddrPort // invalid: the slot did not exist before, or does not exist any more
}

// reassign gives slots to the wanted endpoints, which are sorted, and repeated for several slots. As few slots as
// possible change: an endpoint that stays keeps its slots, and a new one takes the slot of one that goes. Only if the
// pool shrinks, endpoints from its end move into the gaps. The function sets the slots in the list that it gets.
func reassign(old, want []member) (members []member, changes []slotChange) {
	size := uint32(len(want))
	var freed []member   // members whose endpoint goes, or whose slot goes
	var unassigned []int // wanted members that need a slot
	at := 0
	for i := range want {
		m := &want[i]
		for at < len(old) && old[at].compare(m) < 0 {
			freed = append(freed, old[at])
			at++
		}
		if at == len(old) || !old[at].same(m) {
			unassigned = append(unassigned, i)
			continue
		}
		if m.slot = old[at].slot; m.slot >= size {
			freed = append(freed, old[at])
			unassigned = append(unassigned, i)
		}
		at++
	}
	freed = append(freed, old[at:]...)
	changes = fillSlots(want, unassigned, freed, uint32(len(old)))
	sortRuns(want, unassigned)
	return want, changes
}

// sortRuns sorts the slots of each endpoint that got a new one. If the endpoint loses slots later, it keeps the lowest
// ones, and these are the last ones to go when the pool shrinks.
func sortRuns(members []member, assigned []int) {
	from := 0
	for _, i := range assigned {
		if i < from {
			continue // it is in the run that was sorted last
		}
		for from = i + 1; from < len(members) && members[from].same(&members[i]); from++ {
		}
		for i > 0 && members[i-1].same(&members[i]) {
			i--
		}
		slices.SortFunc(members[i:from], func(a, b member) int { return int(a.slot) - int(b.slot) })
	}
}

// fillSlots gives free slots to the members that need one, and lists all slots that change.
func fillSlots(members []member, unassigned []int, freed []member, oldSize uint32) []slotChange {
	if len(freed) == 0 && len(unassigned) == 0 {
		return nil
	}
	size := uint32(len(members))
	slices.SortFunc(freed, func(a, b member) int { return int(a.slot) - int(b.slot) })
	changes := make([]slotChange, 0, len(freed)+len(unassigned))
	next := 0
	take := func() netip.AddrPort {
		addr := members[unassigned[next]].addr()
		next++
		return addr
	}
	for _, m := range freed {
		c := slotChange{slot: m.slot, from: m.addr()}
		if m.slot < size {
			members[unassigned[next]].slot = m.slot
			c.to = take()
		}
		changes = append(changes, c)
	}
	for slot := oldSize; slot < size; slot++ {
		members[unassigned[next]].slot = slot
		changes = append(changes, slotChange{slot: slot, to: take()})
	}
	return changes
}

func compareMembers(a, b member) int {
	return cmp.Or(a.compare(&b), cmp.Compare(a.slot, b.slot))
}

// tableMembers lists the members that a pool with a table of its own has, in order of their slots.
func tableMembers(endpoints []contents.Endpoint) []member {
	table := hashing.Fill(endpoints)
	out := make([]member, len(table))
	for slot, i := range table {
		out[slot] = newMember(endpoints[i].Addr, uint32(slot))
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

// slotsOf is how many slots the endpoints of a pool have.
func slotsOf(method program.Method, endpoints []contents.Endpoint) int {
	if method.Hashes() && len(endpoints) > 0 {
		return int(hashing.Size(len(endpoints)))
	}
	n := 0
	for i := range endpoints {
		n += int(max(endpoints[i].Slots, 1))
	}
	return n
}
