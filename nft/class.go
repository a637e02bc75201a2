package nft

import (
	"cmp"
	"fmt"
	"math/bits"
	"time"
)

// The program works on one 32-bit number, kept in the packet's priority field while a new connection is looked at:
//
//	31                20 19                  1  0
//	+-------------------+---------------------+---+
//	| class or ordinal  | service port        | L |
//	+-------------------+---------------------+---+
//
// The lower 20 bits name a pool: 19 bits for the service port and one that tells its local pool (endpoints on this
// node) from its cluster pool. The upper 12 bits are a class where pools are dispatched, and an endpoint's ordinal in
// tokens of session affinity. In the maps of frontends the top bit says that the source decides which pool serves, the next
// one that the source has to be in the frontend's ranges: others need not look.
const (
	poolBits           = 20
	poolMask    uint32 = 1<<poolBits - 1
	classMask   uint32 = ^poolMask
	localBit    uint32 = 1
	groupMask   uint32 = poolMask &^ localBit
	bySourceBit uint32 = 1 << 31
	limitedBit  uint32 = 1 << 30

	maxPorts    = 1 << (poolBits - 1) // 524,288 service ports and family
	maxClasses  = 1 << (32 - poolBits)
	maxOrdinals = 1 << (32 - poolBits) // endpoints of a service port with affinity
	// maxSlots bounds a pool: the modulus that the endpoints map is declared with.
	maxSlots = 65536
)

// Method says how a class draws a slot.
type Method uint8

// The methods that the program has.
const (
	Random     Method = iota // numgen random
	InTurn                   // numgen inc: one counter for each class, shared by all pools of that class
	SourceHash               // hash of the client's address into a table filled by Maglev's method
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

// draw is a way of getting the number of a slot.
type draw struct {
	method Method
	size   uint32 // numbers below it are drawn
}

// exactDraws is up to how many slots a random draw has a class of its own. Above, the next power of two is drawn from
// and a number without a slot is drawn again. That bounds the number of classes, for a reason that has to be measured to
// be believed: a chain that looks up a map for the first time makes the kernel walk all elements of that map
// (nf_tables_bind_set): 25 ms at 10,000 services, 150 ms at 50,000. The exact classes are there from the start, when the
// maps are empty; the few powers of two come when a first pool needs them, and stay.
const exactDraws = 16

// drawFor is the draw for a pool of n slots.
func drawFor(method Method, n int) draw {
	size := uint32(n)
	if method == Random && n > exactDraws {
		size = 1 << bits.Len32(size-1)
	}
	return draw{method, size}
}

// exact says that every number drawn has a slot.
func (d draw) exact() bool { return d.method != Random || d.size <= exactDraws }

func compareDraws(a, b draw) int {
	return cmp.Or(cmp.Compare(a.method, b.method), cmp.Compare(a.size, b.size))
}

func (d draw) String() string { return fmt.Sprintf("%s-%d", d.method, d.size) }

// class is a draw and what comes after it; every class in use has one chain.
type class struct {
	draw
	affinity time.Duration // 0: none
	local    bool          // only for affinity: the chain has to look for the local pool's endpoints
}

// classFor is the class of a pool; the zero class for a pool without slots.
func classFor(method Method, slots int, affinity time.Duration, local bool) class {
	if slots == 0 {
		return class{}
	}
	return class{drawFor(method, slots), affinity, local && affinity > 0}
}

// empty says that it is the class of a pool without slots.
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

// stays says that the class is never removed once it is there: there are few of its kind.
func (c class) stays() bool { return c.method != InTurn && c.affinity == 0 }

// spareClasses is how many classes without a pool are kept, so that a service port that gains and loses an endpoint
// in turn does not create and remove chains.
const spareClasses = 16

// classTable numbers the classes in use.
type classTable struct {
	entries map[class]*classEntry
	byID    map[uint32]class
	next    uint32
	clock   uint64 // counts releases: the spare class released longest ago goes first
}

type classEntry struct {
	id       uint32
	users    int
	released uint64
}

func newClassTable() *classTable {
	t := &classTable{entries: map[class]*classEntry{}, byID: map[uint32]class{}, next: 1}
	for size := range exactDraws {
		_, _, _ = t.acquire(classFor(Random, size+1, 0, false)) // cannot fail: the table is empty
	}
	return t
}

// acquire counts one more pool of a class and returns its number; fresh says that its chain has to be created.
func (t *classTable) acquire(c class) (id uint32, fresh bool, err error) {
	if e := t.entries[c]; e != nil {
		e.users++
		return e.id, false, nil
	}
	if len(t.byID) >= maxClasses-1 {
		return 0, false, fmt.Errorf("class %s: all %d classes are in use", c.chain(), maxClasses-1)
	}
	for t.byID[t.next] != (class{}) || t.next == 0 {
		t.next = (t.next + 1) % maxClasses
	}
	id = t.next
	t.next = (t.next + 1) % maxClasses
	t.entries[c] = &classEntry{id: id, users: 1}
	t.byID[id] = c
	return id, true, nil
}

// release counts one pool less.
func (t *classTable) release(c class) {
	e := t.entries[c]
	e.users--
	t.clock++
	e.released = t.clock
}

// collect forgets spare classes beyond a number and returns them: their chains have to go.
func (t *classTable) collect(keep int) []retired {
	var gone []retired
	for {
		oldest, spare := t.oldestSpare()
		if spare <= keep {
			return gone
		}
		id := t.entries[oldest].id
		gone = append(gone, retired{oldest, id})
		delete(t.byID, id)
		delete(t.entries, oldest)
	}
}

type retired struct {
	class class
	id    uint32
}

func (t *classTable) oldestSpare() (oldest class, spare int) {
	first := uint64(0)
	for c, e := range t.entries {
		if e.users > 0 || c.stays() {
			continue
		}
		spare++
		if first == 0 || e.released < first {
			first, oldest = e.released, c
		}
	}
	return oldest, spare
}
