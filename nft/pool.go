package nft

import (
	"cmp"
	"encoding/binary"
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

// member is one slot's endpoint. It has no pointers, unlike netip.Addr: there are hundreds of thousands, which the garbage
// collector need not look into.
type member struct {
	hi, lo uint64 // the address; of IPv4 only the lower half of lo
	slot   uint32
	port   uint16
	family Family // 0: nobody
}

func newMember(addr netip.AddrPort, slot uint32) member {
	m := member{slot: slot, port: addr.Port(), family: FamilyOf(addr.Addr())}
	if m.family == IPv4 {
		b := addr.Addr().As4()
		m.lo = uint64(binary.BigEndian.Uint32(b[:]))
		return m
	}
	b := addr.Addr().As16()
	m.hi, m.lo = binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])
	return m
}

// addr is the endpoint; the zero AddrPort for nobody.
func (m *member) addr() netip.AddrPort {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], m.hi)
	binary.BigEndian.PutUint64(b[8:], m.lo)
	switch m.family {
	case IPv4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[12:])), m.port)
	case IPv6:
		return netip.AddrPortFrom(netip.AddrFrom16(b), m.port)
	}
	return netip.AddrPort{}
}

// same says that two members of a pool are one endpoint.
func (m *member) same(o *member) bool {
	return m.lo == o.lo && m.hi == o.hi && m.port == o.port && m.family == o.family
}

// compare orders endpoints of one family as netip.AddrPort.Compare does.
func (m *member) compare(o *member) int {
	return cmp.Or(cmp.Compare(m.hi, o.hi), cmp.Compare(m.lo, o.lo), cmp.Compare(m.port, o.port))
}

// seating is who is to sit in a pool: with fixed seats (for consistent hashing) a member for each slot, in order of slots;
// otherwise members in order, whose slots are still to be found.
type seating struct {
	members []member
	fixed   bool
}

func newSeating(method Method, endpoints []Endpoint, spare []member) seating {
	if method == SourceHash && len(endpoints) > 0 {
		return seating{seatedBy(maglev(endpoints)), true}
	}
	return seating{expand(endpoints, spare), false}
}

// manyMembers is from how many on the memory of a pool is used again for the next one like it: small lists cost little to
// allocate, and must not hold on to large memory.
const manyMembers = 1024

func (tb *table) newSeating(method Method, endpoints []Endpoint) seating {
	var spare []member
	if n := len(endpoints); n >= manyMembers && cap(tb.spare) < 2*n {
		spare, tb.spare = tb.spare, nil
	}
	return newSeating(method, endpoints, spare)
}

// seat tells what changes when the pool is seated so. It uses up the seating.
func (s seating) seat(old []member) ([]member, []slotChange) {
	if s.fixed {
		return place(old, s.members)
	}
	return reassign(old, s.members)
}

// expand lists the endpoints, each as often as it has slots, in spare memory if that is enough.
func expand(endpoints []Endpoint, spare []member) []member {
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

// slotChange is a slot whose content changes.
type slotChange struct {
	slot     uint32
	from, to netip.AddrPort // invalid: no such slot before or after
}

// reassign seats the wanted endpoints (sorted, repeated for several slots) so that as few slots as possible change:
// who stays keeps the slot, newcomers take the slots of those who left, and only when the pool shrinks do endpoints
// from the end move into the gaps. It fills in the slots of the list that it is given.
func reassign(old, want []member) (members []member, changes []slotChange) {
	size := uint32(len(want))
	var left []member  // whose endpoint is gone, or whose slot is
	var unseated []int // members that need a slot
	at := 0
	for i := range want {
		m := &want[i]
		for at < len(old) && old[at].compare(m) < 0 {
			left = append(left, old[at])
			at++
		}
		if at == len(old) || !old[at].same(m) {
			unseated = append(unseated, i)
			continue
		}
		if m.slot = old[at].slot; m.slot >= size {
			left = append(left, old[at])
			unseated = append(unseated, i)
		}
		at++
	}
	left = append(left, old[at:]...)
	changes = seat(want, unseated, left, uint32(len(old)))
	sortRuns(want, unseated)
	return want, changes
}

// sortRuns puts the slots of each endpoint that got one in order: when it has to give some up later, it keeps the lowest,
// which are the last to vanish.
func sortRuns(members []member, seated []int) {
	from := 0
	for _, i := range seated {
		if i < from {
			continue // in the run sorted before
		}
		for from = i + 1; from < len(members) && members[from].same(&members[i]); from++ {
		}
		for i > 0 && members[i-1].same(&members[i]) {
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
		addr := members[unseated[next]].addr()
		next++
		return addr
	}
	for _, m := range left {
		c := slotChange{slot: m.slot, from: m.addr()}
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

func compareMembers(a, b member) int {
	return cmp.Or(a.compare(&b), cmp.Compare(a.slot, b.slot))
}
