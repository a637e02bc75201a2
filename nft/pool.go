package nft

import (
	"cmp"
	"net/netip"
	"slices"
)

// pool is the applied state of one pool: which endpoint sits in which slot.
type pool struct {
	number uint32 // the lower 20 bits of the program's number
	// class is how a slot is picked; a pool without slots has none and is not in the kernel.
	class   class
	classID uint32
	members []member // sorted by address, then slot; an endpoint with several slots occurs several times
}

// member is one slot's endpoint.
type member struct {
	addr netip.AddrPort
	slot uint32
}

// seating is who is to sit in a pool: a table of slots for consistent hashing, otherwise endpoints in any order of
// slots, sorted and each as often as it has slots.
type seating struct {
	addrs []netip.AddrPort
	fixed bool
}

func newSeating(method Method, endpoints []Endpoint) seating {
	if method == SourceHash && len(endpoints) > 0 {
		return seating{maglev(endpoints), true}
	}
	return seating{expand(endpoints), false}
}

// seat tells what changes when the pool is seated so.
func (s seating) seat(old []member) ([]member, []slotChange) {
	if s.fixed {
		return place(old, s.addrs)
	}
	return reassign(old, s.addrs)
}

// expand lists the endpoints, each as often as it has slots.
func expand(endpoints []Endpoint) []netip.AddrPort {
	out := make([]netip.AddrPort, 0, len(endpoints))
	for _, e := range endpoints {
		for range max(e.Slots, 1) {
			out = append(out, e.Addr)
		}
	}
	return out
}

// slotChange is a slot whose content changes.
type slotChange struct {
	slot     uint32
	from, to netip.AddrPort // invalid: no such slot before or after
}

// reassign seats the wanted endpoints (sorted, repeated for several slots) so that as few slots as possible change:
// who stays keeps the slot, newcomers take the slots of those who left, and only when the pool shrinks do endpoints
// from the end move into the gaps.
func reassign(old []member, want []netip.AddrPort) (members []member, changes []slotChange) {
	members = make([]member, 0, len(want))
	size := uint32(len(want))
	var left []member  // whose endpoint is gone, or whose slot is
	var unseated []int // members that need a slot
	keep := func(m member) {
		if m.slot < size {
			members = append(members, m)
			return
		}
		left = append(left, m)
		unseated = append(unseated, len(members))
		members = append(members, m)
	}
	i := 0
	for _, addr := range want {
		for i < len(old) && compareAddrPort(old[i].addr, addr) < 0 {
			left = append(left, old[i])
			i++
		}
		if i < len(old) && old[i].addr == addr {
			keep(old[i])
			i++
			continue
		}
		unseated = append(unseated, len(members))
		members = append(members, member{addr: addr})
	}
	left = append(left, old[i:]...)
	changes = seat(members, unseated, left, uint32(len(old)))
	sortRuns(members, unseated)
	return members, changes
}

// sortRuns puts the slots of each endpoint that got one in order: when it has to give some up later, it keeps the lowest,
// which are the last to vanish.
func sortRuns(members []member, seated []int) {
	from := 0
	for _, i := range seated {
		if i < from {
			continue // in the run sorted before
		}
		for from = i + 1; from < len(members) && members[from].addr == members[i].addr; from++ {
		}
		for i > 0 && members[i-1].addr == members[i].addr {
			i--
		}
		slices.SortFunc(members[i:from], func(a, b member) int { return int(a.slot) - int(b.slot) })
	}
}

// seat gives free slots to the unseated members and lists all slots that change.
func seat(members []member, unseated []int, left []member, oldSize uint32) []slotChange {
	if len(left) == 0 && len(unseated) == 0 {
		return nil
	}
	size := uint32(len(members))
	slices.SortFunc(left, func(a, b member) int { return int(a.slot) - int(b.slot) })
	changes := make([]slotChange, 0, len(left)+len(unseated))
	next := 0
	take := func() netip.AddrPort {
		addr := members[unseated[next]].addr
		next++
		return addr
	}
	for _, m := range left {
		c := slotChange{slot: m.slot, from: m.addr}
		if m.slot < size {
			members[unseated[next]].slot = m.slot
			c.to = take()
		}
		changes = append(changes, c)
	}
	for slot := oldSize; slot < size; slot++ {
		members[unseated[next]].slot = slot
		changes = append(changes, slotChange{slot: slot, to: take()})
	}
	return changes
}

func compareAddrPort(a, b netip.AddrPort) int { return a.Compare(b) }

func compareMembers(a, b member) int {
	return cmp.Or(compareAddrPort(a.addr, b.addr), cmp.Compare(a.slot, b.slot))
}
