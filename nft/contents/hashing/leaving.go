package hashing

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// A table without pools leaves in pieces, because the kernel needs half a second for the slots of a large one, and takes no
// other changes meanwhile. Until its last slot is gone, it keeps its number.
//
// The map hash-tables leads from pools to tables, so a process that starts does not find such a table there. The
// transaction in which the last pool leaves adds a mark to that map: an element whose key is the table in place of a pool.
// No packet looks it up, because tables have larger numbers than pools.

// IsMark reports whether the key of an element of the map hash-tables stands for a table without pools.
func IsMark(key uint32) bool { return key >= program.FirstTable<<program.TableShift }

// setMark marks a table, or takes its mark away. Its data is that of a pool with the table.
func (t *hashTable) setMark(l *ledger.Ledger, marked bool) {
	if t.marked == marked {
		return
	}
	var b program.Builder
	b.Word(t.number << program.TableShift)
	value := t.number << program.TableShift
	if !t.withPorts {
		value |= 1
	}
	b.Word(value)
	if t.marked = marked; marked {
		l.Put(program.HashTables, b.Arena[:4], b.Arena[4:])
	} else {
		l.Drop(program.HashTables, b.Arena[:4])
	}
}

// leave has a table leave that has had no pool since an earlier transaction. It reports whether the table is off the list of
// idle ones.
func (h *Tables) leave(table *hashTable) bool {
	empty := table.users == 0 && table.account != nil
	if table.setMark(h.ledger, empty); empty && table.emptied == h.round && len(table.waiting) == 0 {
		return false
	}
	switch table.idle = false; {
	case empty && len(table.waiting) > 0:
		h.coming.add(table)
	case empty:
		h.retire(table)
	}
	return true
}

// retire has a table leave. The service port that had it last pays for its slots.
func (h *Tables) retire(t *hashTable) {
	delete(h.byKey, t.key)
	h.leaving = append(h.leaving, t)
	h.paid[t.owner] += len(t.slots.bySlot)
}

// Leaving reports whether slots are left of tables that no pool has.
func (h *Tables) Leaving() bool { return len(h.leaving)+len(h.idle) > 0 }

// TakePaid returns how many slots have begun to come or to leave since the last call, by the service ports that pay for them.
func (h *Tables) TakePaid() map[string]int {
	paid := h.paid
	h.paid = map[string]int{}
	return paid
}

// DeletePiece deletes the next slots of tables that leave, and returns how many. A table loses its last slots first, because a
// process that starts reads rows without gaps.
func (h *Tables) DeletePiece(most int) (n int) {
	for n < most && len(h.leaving) > 0 {
		t := h.leaving[0]
		rest := max(0, len(t.slots.bySlot)-(most-n))
		n += len(t.slots.bySlot) - rest
		if t.resize(h.ledger, rest); rest == 0 {
			t.setMark(h.ledger, false)
			h.forget(t)
			h.leaving = h.leaving[1:]
		}
	}
	return n
}

// Keep has a table of the kernel leave in pieces, unless a pool has it.
func (h *Tables) Keep(number uint32, withPorts bool, list iter.Seq[netip.AddrPort]) {
	if h.used[number] != nil {
		return
	}
	t, s, index := &hashTable{number: number, withPorts: withPorts}, slots{}, map[netip.AddrPort]uint16{}
	for at := range list {
		i, known := index[at]
		if !known {
			i = uint16(len(index))
			index[at] = i
			s.endpoints = append(s.endpoints, contents.Endpoint{Addr: at})
		}
		s.bySlot = append(s.bySlot, i)
	}
	if len(s.bySlot) > 0 {
		h.used[number], t.account = t, h.ledger.Open("")
		t.want(h.ledger, &s)
		t.setMark(h.ledger, true)
		h.leaving = append(h.leaving, t)
	}
}

// ForgetIdle forgets all tables that have no pool. Nobody waits for one.
func (h *Tables) ForgetIdle() {
	for _, table := range slices.Concat(h.idle, h.leaving, h.coming.all()) {
		h.coming.remove(table)
		table.setMark(h.ledger, false)
		if table.idle = false; table.users == 0 {
			h.forget(table)
		}
	}
	h.idle, h.leaving = nil, nil
}
