package hashing

import (
	"math"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// A large table is written in pieces before a pool has it: the kernel needs 180 ms for 65,521 slots, and other changes go between.
// The service ports that are to have it stay as they are until the last slot is there. No packet looks the slots up before. Such a table
// has a mark, so a process that starts in between has what it finds of it leave.
//
// If few slots differ, the table that the pools have changes in place, if all of them get the same one.

// Awaited is the table that a pool is to have, for a service port that waits or may have to.
type Awaited struct{ table, from *hashTable }

// Await has the table of some endpoints come for a pool, nil: a new one. A table that is there stays until Release.
func (h *Tables) Await(pl *Pool, owner string, endpoints []contents.Endpoint) Awaited {
	list, port := withoutPorts(endpoints)
	key, a := newHashKey(list), Awaited{}
	if pl.HasTable() {
		a.from = pl.table
	}
	if a.table = h.byKey[key]; a.table == nil {
		a.table = &hashTable{key: key, endpoints: slices.Clone(list), withPorts: port == 0, from: a.from, owner: owner}
		h.byKey[key], h.coming = a.table, append(h.coming, a.table)
	}
	a.table.waiting++
	if a.moves() {
		a.table.movers++
	}
	return a
}

// Release ends that.
func (a Awaited) Release() {
	a.table.waiting--
	if a.moves() {
		a.table.movers--
	}
}

// moves reports whether the pool has the table that the new one may take the place of.
func (a Awaited) moves() bool { return a.from != nil && a.from == a.table.from }

// Ready reports whether the pool can get the table with this transaction.
func (a Awaited) Ready() bool {
	return a.table.inPlace || a.table.users > 0 || a.table.complete() || a.table.size() == 1
}

// InPlace reports whether the pool must get it with this transaction.
func (a Awaited) InPlace() bool { return a.table.inPlace && a.moves() }

// Hold has a table wait for another transaction that was to change in place with this one.
func (a Awaited) Hold() { a.table.inPlace = false }

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
	return t.account == nil && from != nil && h.byKey[from.key] == from && from.account != nil && from.waiting == 0 && from.withPorts == t.withPorts
}

// changesInPlace is how many changes it is to change in place; MaxInt: it cannot.
func (h *Tables) changesInPlace(t *hashTable) int {
	const eachPool = 4
	if t.movers > 0 && h.replaces(t) && t.movers == t.from.users {
		return 2*t.differ + eachPool*t.movers
	}
	return math.MaxInt
}

// WriteAhead writes the next slots of tables that service ports wait for, most at the most, and says which ones change in place. That
// is one of up to 3*piece changes, or several with as many together: 3 endpoints of which one goes are 2,730. It returns how many
// changes all that is. Namespaces take turns.
func (h *Tables) WriteAhead(piece, most int) (n int) {
	for _, t := range h.coming {
		t.fill()
		changes := h.changesInPlace(t)
		if t.inPlace = changes <= 3*piece-n; t.inPlace {
			n += changes
		}
	}
	const numbers = program.MaxTables / 4 * 7 // of twice as many; some come and leave
	for left := most; left > 0; {
		i := slices.IndexFunc(h.coming, func(t *hashTable) bool {
			return t.users == 0 && !t.complete() && h.changesInPlace(t) > 3*piece && (t.account != nil || len(h.numbers) < numbers)
		})
		if i < 0 {
			break
		}
		t := h.coming[i]
		if t.account == nil {
			h.begin(t)
			h.setMark(t, true)
		}
		more := min(left, t.size()-len(t.slots.bySlot))
		h.resize(t, len(t.slots.bySlot)+more)
		n, left = n+more, left-more
	}
	if len(h.coming) > 0 {
		namespace := func(t *hashTable) string { name, _, _ := strings.Cut(t.owner, "/"); return name }
		had := namespace(h.coming[0])
		slices.SortStableFunc(h.coming, func(a, b *hashTable) int {
			switch x, y := namespace(a) == had, namespace(b) == had; {
			case x == y:
				return 0
			case x:
				return 1
			}
			return -1
		})
	}
	return n
}

// arrive takes those tables off the list of those to come that pools have, and those that nobody waits for any more.
func (h *Tables) arrive() {
	h.coming = slices.DeleteFunc(h.coming, func(t *hashTable) bool {
		switch {
		case t.users > 0:
			h.setMark(t, false)
		case t.waiting > 0:
			return false
		case t.account != nil:
			h.retire(t)
		default:
			h.forget(t)
		}
		return true
	})
}
