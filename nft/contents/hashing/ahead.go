package hashing

import (
	"math"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// A large table is written in pieces before a pool has it: the kernel needs 180 ms for 65,521 slots, and other changes go between.
// The service ports that are to have it stay as they are until the last slot is there. No packet looks the slots up before. Such a table
// has a mark, so a process that starts in between has what it finds of it leave.
//
// If few slots differ, the table that the pools have changes in place, if all of them get the same one.

// Awaited is the table that a pool is to have, for a service port that waits or may have to.
type Awaited struct {
	of          *Tables
	owner       string // the service port
	table, from *hashTable
}

// Await has the table of some endpoints come for a pool, nil: a new one. A table that is there stays until Release.
func (h *Tables) Await(pl *Pool, owner string, endpoints []contents.Endpoint) *Awaited {
	list, port := withoutPorts(endpoints)
	key, a := newHashKey(list), &Awaited{of: h, owner: owner}
	if pl.HasTable() {
		a.from = pl.table
	}
	if a.table = h.byKey[key]; a.table == nil {
		a.table = &hashTable{key: key, endpoints: slices.Clone(list), withPorts: port == 0, from: a.from, owner: owner}
		h.byKey[key] = a.table
		h.coming.add(a.table)
	}
	if a.table.waiting == nil {
		a.table.waiting, a.table.movers = map[*Awaited]bool{}, map[*Awaited]bool{}
	}
	if a.table.waiting[a] = true; a.moves() {
		a.table.movers[a] = true
	}
	return a
}

// Release ends that.
func (a *Awaited) Release() {
	delete(a.table.movers, a)
	if delete(a.table.waiting, a); len(a.table.waiting) == 0 {
		a.of.settled = append(a.of.settled, a.table)
	}
}

// moves reports whether the pool has the table that the new one may take the place of.
func (a *Awaited) moves() bool { return a.from != nil && a.from == a.table.from }

// Ready reports whether the pool can get the table with this transaction. If that changes, InPlace or TakeReady names the service port.
func (a *Awaited) Ready() bool {
	return a.table.inPlace || a.table.users > 0 || a.table.complete() || a.table.size() == 1
}

// Hold has a table wait for another transaction that was to change in place with this one, if the pool must get it.
func (a *Awaited) Hold() {
	if a.moves() {
		a.table.inPlace = false
	}
}

func (t *hashTable) size() int { return int(Size(len(t.endpoints))) }

// complete reports whether all slots are there, or are in this transaction.
func (t *hashTable) complete() bool { return t.account != nil && len(t.slots.bySlot) == t.size() }

// fill finds out what the slots are, and how many of them differ from those of the table that the first pool has.
func (t *hashTable) fill() {
	if t.slots != nil {
		return
	}
	all := maglev(t.endpoints)
	t.slots, t.differ = &slots{endpoints: t.endpoints, bySlot: all[:0]}, len(all)
	if from := t.from; from != nil && from.account != nil && len(from.slots.bySlot) == len(all) {
		t.differ = 0
		for slot, i := range all {
			if t.endpoints[i].Addr != from.endpoints[from.slots.bySlot[slot]].Addr {
				t.differ++
			}
		}
	}
}

// replaces reports whether a table can take the place of the one that its first pool had, once no pool has that.
func (h *Tables) replaces(t *hashTable) bool {
	from := t.from
	return t.account == nil && from != nil && h.byKey[from.key] == from && from.account != nil && len(from.waiting) == 0 && from.withPorts == t.withPorts
}

// changesInPlace is how many changes it is to change in place; MaxInt: it cannot.
func (h *Tables) changesInPlace(t *hashTable) int {
	const eachPool = 4
	if n := len(t.movers); n > 0 && h.replaces(t) && n == t.from.users {
		t.fill()
		return 2*t.differ + eachPool*n
	}
	return math.MaxInt
}

// WriteAhead writes the next slots of tables that service ports wait for, most at the most, and says which ones change in place. That
// is one of up to 3*piece changes, or several with as many together: 3 endpoints of which one goes are 2,730. It returns how many
// changes all that is. Namespaces take turns. It looks at no more than piece tables: each transaction pays for that.
func (h *Tables) WriteAhead(piece, most int) (n int) {
	for _, t := range h.inPlace {
		t.inPlace = false
	}
	h.inPlace = h.inPlace[:0]
	left, inPlace, looks := most, 3*piece, piece
	for t := range h.coming.take() {
		switch changes := h.changesInPlace(t); {
		case changes <= inPlace:
			t.inPlace, h.inPlace = true, append(h.inPlace, t)
			inPlace, n = inPlace-changes, n+changes
		case changes <= 3*piece:
			inPlace = 0 // those behind it do not overtake it
		case left > 0 && t.users == 0:
			more := h.writeMore(t, left)
			left, n = left-more, n+more
		}
		if looks--; looks == 0 || left == 0 && inPlace == 0 {
			break
		}
	}
	return n
}

// InPlace are the service ports that must get a table with this transaction that changes in place. One may be there twice.
func (h *Tables) InPlace() (ports []string) {
	for _, t := range h.inPlace {
		for a := range t.movers {
			if t.inPlace {
				ports = append(ports, a.owner)
			}
		}
	}
	return ports
}

// appendWaiting appends the service ports that wait for the table.
func (t *hashTable) appendWaiting(list []string) []string {
	for a := range t.waiting {
		list = append(list, a.owner)
	}
	return list
}

// TakeReady returns the service ports that can have a table that they wait for since the last call. One may be there twice.
func (h *Tables) TakeReady() (ports []string) {
	ports, h.ready = h.ready, nil
	return ports
}

// writeMore writes the next slots of a table, and returns how many.
func (h *Tables) writeMore(t *hashTable, most int) (n int) {
	const numbers = program.MaxTables / 4 * 7 // of twice as many; some come and leave
	if t.account == nil {
		if len(h.used) >= numbers {
			return 0
		}
		t.fill()
		h.begin(t)
		t.setMark(h.ledger, true)
	}
	n = min(most, t.size()-len(t.slots.bySlot))
	t.resize(h.ledger, len(t.slots.bySlot)+n)
	if t.complete() {
		h.coming.add(t)
		h.ready = t.appendWaiting(h.ready)
	}
	return n
}

// arrive takes those tables off the list of those to come that pools have, and those that nobody waits for any more.
func (h *Tables) arrive() {
	for _, t := range h.settled {
		if t.place == nil || t.users == 0 && len(t.waiting) > 0 {
			continue
		}
		h.coming.remove(t)
		switch {
		case t.users > 0:
			t.setMark(h.ledger, false)
		case t.account == nil:
			h.forget(t)
		case !t.idle: // it leaves with the idle ones otherwise
			h.retire(t)
		}
	}
	h.settled = h.settled[:0]
}
