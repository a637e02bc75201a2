package nft

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// The program works on one 32-bit number, the scratch number. It is in the packet's priority field while the rules look
// at a new connection:
//
//	31                20 19                  1  0
//	+-------------------+---------------------+---+
//	| class or ordinal  | service port        | L |
//	+-------------------+---------------------+---+
//
// The lower 20 bits are the number of a pool: 19 bits for the service port, and bit L, which is set for its local pool
// (the endpoints on this node) and clear for its cluster pool. The meaning of the upper 12 bits depends on the map:
//
//	pools                             the class of the pool
//	sticky-slots, affinity            the ordinal of an endpoint; with the lower bits it is a token
//	services, nodeports, bit 31       the client's address decides which pool serves it
//	services, nodeports, bit 30       the client's address must be in the source ranges of the frontend
const (
	poolBits           = 20
	poolMask    uint32 = 1<<poolBits - 1
	classMask   uint32 = ^poolMask
	localBit    uint32 = 1
	groupMask   uint32 = poolMask &^ localBit
	bySourceBit uint32 = 1 << 31
	limitedBit  uint32 = 1 << 30

	maxPorts    = 1 << (poolBits - 1) // 524,288 service ports in each family
	maxClasses  = 1 << (32 - poolBits)
	maxOrdinals = 1 << (32 - poolBits) // endpoints of a service port with affinity
	// maxSlots bounds a pool: the modulus that the endpoints map is declared with.
	maxSlots = 65536
)

// Method is how a class draws a slot.
type Method uint8

// The methods.
const (
	Random     Method = iota // numgen random
	InTurn                   // numgen inc: one counter for each class, which all pools of the class share
	SourceHash               // a hash of the client's address, into a table that Maglev's method fills
)

func (m Method) String() string {
	switch m {
	case InTurn:
		return "turn"
	case SourceHash:
		return "hash"
	}
	return "random"
}

// draw is a way to get the number of a slot.
type draw struct {
	method Method
	size   uint32 // the numbers drawn are below it
}

// exactDraws is the largest number of slots for which a draw has a class of its own. For a larger pool, the class draws
// a number below the next power of two, and draws again if the number has no slot. So there are few classes, and no
// number of endpoints needs a class that is not there for all. It also matters because a new chain with a lookup makes
// the kernel walk all elements of the map (nf_tables_bind_set): 25 ms at 10,000 services, 150 ms at 50,000. The exact
// random classes exist from the start, when the maps are empty. Other classes without affinity are made when the first
// pool needs them, and they stay.
const exactDraws = 16

// drawFor is the draw for a pool of n slots.
func drawFor(method Method, n int) draw {
	size := uint32(n)
	if method != SourceHash && n > exactDraws {
		size = 1 << bits.Len32(size-1)
	}
	return draw{method, size}
}

// exact reports whether every number drawn has a slot.
func (d draw) exact() bool { return d.method == SourceHash || d.size <= exactDraws }

func compareDraws(a, b draw) int {
	return cmp.Or(cmp.Compare(a.method, b.method), cmp.Compare(a.size, b.size))
}

func (d draw) String() string { return fmt.Sprintf("%s-%d", d.method, d.size) }

// class is how the program picks an endpoint of a pool. All pools that are served alike share a class, and every class
// has one chain.
type class struct {
	draw
	affinity time.Duration // 0: none
	local    bool          // only with affinity: the chain looks for endpoints of the local pool
}

// hashed reports whether the pools of the class have hash tables (hash.go). With affinity, the slots of a pool have
// tokens, which no other pool can share.
func (c class) hashed() bool { return c.method == SourceHash && c.affinity == 0 && !c.empty() }

// slotsOf is how many slots the endpoints of a pool have.
func slotsOf(method Method, endpoints []Endpoint) int {
	if method == SourceHash && len(endpoints) > 0 {
		return int(maglevSize(len(endpoints)))
	}
	n := 0
	for i := range endpoints {
		n += int(max(endpoints[i].Slots, 1))
	}
	return n
}

// classFor is the class of a pool; the zero class for a pool without slots.
func classFor(method Method, slots int, affinity time.Duration, local bool) class {
	if slots == 0 {
		return class{}
	}
	return class{draw: drawFor(method, slots), affinity: affinity, local: local && affinity > 0}
}

// empty reports whether it is the class of a pool without slots.
func (c class) empty() bool { return c.size == 0 }

// chain is the name of the class's chain, such as random-3 or random-3-sticky-3h.
func (c class) chain() string {
	name := fmt.Sprint(c.draw)
	if c.affinity == 0 {
		return name
	}
	name += "-sticky-" + duration(c.affinity)
	if c.local {
		name += "-local"
	}
	return name
}

// permanent reports whether the class is never removed once it exists. There are few such classes.
func (c class) permanent() bool { return c.affinity == 0 }

// spareClasses is how many classes without a pool are kept. A service port that gains and loses an endpoint again and
// again does not create and delete chains each time.
const spareClasses = 16

// classTable numbers the classes in use. Their number is bounded (limits.go), so there is always a number for one more.
type classTable struct {
	entries map[class]*classEntry
	byID    map[uint32]class
	next    uint32
	clock   uint64 // counts releases; the spare class that was released first is removed first
	spares  int
	// preferred are numbers of an earlier process. Classes get them again, and no other classes do.
	preferred map[uint32]class
	// exact counts the classes of each affinity timeout that is not a rung. The spare ones count, too.
	exact map[time.Duration]int
}

type classEntry struct {
	id       uint32
	users    int
	released uint64
}

func newClassTable() *classTable {
	t := &classTable{entries: map[class]*classEntry{}, byID: map[uint32]class{}, next: 1, exact: map[time.Duration]int{}}
	for size := range exactDraws {
		t.acquire(classFor(Random, size+1, 0, false))
	}
	return t
}

// acquire adds a user to a class and returns the number of the class. If fresh is true, the caller creates its chain.
func (t *classTable) acquire(c class) (id uint32, fresh bool) {
	if e := t.entries[c]; e != nil {
		if e.users++; e.users == 1 && !c.permanent() {
			t.spares--
		}
		return e.id, false
	}
	id = t.number(c)
	t.entries[c] = &classEntry{id: id, users: 1}
	t.byID[id] = c
	if c.affinity != 0 && !isRung(c.affinity) {
		t.exact[c.affinity]++
	}
	return id, true
}

// number finds a number for a new class.
func (t *classTable) number(c class) uint32 {
	for id, is := range t.preferred {
		if is == c && t.byID[id] == (class{}) {
			return id
		}
	}
	for t.next == 0 || t.byID[t.next] != (class{}) || t.preferred[t.next] != (class{}) && t.preferred[t.next] != c {
		t.next = (t.next + 1) % maxClasses
	}
	id := t.next
	t.next = (t.next + 1) % maxClasses
	return id
}

// prefer sets the numbers that classes had in an earlier process; nil: there is none any more.
func (t *classTable) prefer(earlier map[uint32]class) { t.preferred = earlier }

// release removes a user from a class.
func (t *classTable) release(c class) {
	e := t.entries[c]
	t.clock++
	e.released = t.clock
	if e.users--; e.users == 0 && !c.permanent() {
		t.spares++
	}
}

// collect forgets spare classes, except for a number to keep, and returns them: the caller deletes their chains.
func (t *classTable) collect(keep int) []retired {
	if t.spares <= keep {
		return nil
	}
	gone := make([]retired, 0, t.spares)
	for c, e := range t.entries {
		if e.users == 0 && !c.permanent() {
			gone = append(gone, retired{class: c, id: e.id, released: e.released})
		}
	}
	slices.SortFunc(gone, func(a, b retired) int { return cmp.Compare(a.released, b.released) })
	gone = gone[:len(gone)-keep]
	for _, r := range gone {
		t.forget(r.class, r.id)
	}
	return gone
}

type retired struct {
	class    class
	id       uint32
	released uint64
}

func (t *classTable) forget(c class, id uint32) {
	delete(t.byID, id)
	delete(t.entries, c)
	t.spares--
	if t.exact[c.affinity]--; t.exact[c.affinity] <= 0 {
		delete(t.exact, c.affinity)
	}
}
