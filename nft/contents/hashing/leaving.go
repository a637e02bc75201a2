package hashing

import (
	"iter"
	"net/netip"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// A table without pools leaves in pieces, because the kernel needs half a second for the slots of a large one, and takes no
// other changes meanwhile. Until its last slot is gone, it keeps its number.
//
// The map hash-tables leads from pools to tables, so a process that starts does not find such a table there. The
// transaction in which the last pool leaves adds a mark to that map: an element whose key is the table in place of a pool.
// No packet looks it up, because tables have larger numbers than pools.

// leaving are the tables that no pool has had since an earlier transaction.
type leaving struct {
	tables  []*hashTable
	retired map[string]int // slots that began to leave, by the service port that had them last
}

// IsMark reports whether the key of an element of the map hash-tables stands for a table without pools.
func IsMark(key uint32) bool { return key >= program.FirstTable<<program.TableShift }

// setMark marks a table, or takes its mark away. Its data is that of a pool with the table.
func (h *Tables) setMark(t *hashTable, marked bool) {
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
		h.ledger.Put(program.HashTables, b.Arena[:4], b.Arena[4:])
	} else {
		h.ledger.Drop(program.HashTables, b.Arena[:4])
	}
}

// leave has a table leave that has had no pool since an earlier transaction. It reports whether the table is off the list of
// idle ones.
func (h *Tables) leave(table *hashTable) bool {
	empty := table.users == 0 && table.account != nil
	if h.setMark(table, empty); empty && table.emptied == h.round {
		return false
	}
	if table.idle = false; empty {
		delete(h.byKey, table.key)
		h.leaving.tables = append(h.leaving.tables, table)
		if h.leaving.retired == nil {
			h.leaving.retired = map[string]int{}
		}
		h.leaving.retired[table.owner] += len(table.slots.bySlot)
	}
	return true
}

// Leaving reports whether slots are left of tables that no pool has.
func (h *Tables) Leaving() bool { return len(h.leaving.tables)+len(h.idle) > 0 }

// TakeRetired returns how many slots have begun to leave since the last call, by the service port that had them last.
func (h *Tables) TakeRetired() map[string]int {
	retired := h.leaving.retired
	h.leaving.retired = nil
	return retired
}

// DeletePiece deletes the next slots of tables that leave, and returns how many. A table loses its last slots first, because a
// process that starts reads rows without gaps.
func (h *Tables) DeletePiece(most int) (n int) {
	for l := &h.leaving; n < most && len(l.tables) > 0; {
		t := l.tables[0]
		next := *t.slots
		rest := max(0, len(next.bySlot)-(most-n))
		n += len(next.bySlot) - rest
		next.bySlot, next.Builder = next.bySlot[:rest], program.Builder{}
		if h.want(t, &next); rest == 0 {
			h.setMark(t, false)
			h.forget(t)
			l.tables = l.tables[1:]
		}
	}
	return n
}

// Keep has a table of the kernel leave in pieces, unless a pool has it.
func (h *Tables) Keep(number uint32, withPorts bool, list iter.Seq[netip.AddrPort]) {
	if h.numbers[number] != nil {
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
		h.numbers[number] = t
		h.want(t, &s)
		h.setMark(t, true)
		h.leaving.tables = append(h.leaving.tables, t)
	}
}

// ForgetIdle forgets all tables that have no pool.
func (h *Tables) ForgetIdle() {
	for _, table := range append(h.idle, h.leaving.tables...) {
		if table.idle = false; table.users == 0 {
			h.setMark(table, false)
			h.forget(table)
		}
	}
	h.idle, h.leaving = nil, leaving{}
}
