package hashing

import (
	"iter"
	"net/netip"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// A table without pools leaves in pieces, because the kernel needs half a second for the slots of a large one, and takes no
// other changes meanwhile. Until its last slot is gone, it keeps its number, and the mirror has the slots that the kernel
// still has.
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

// mark is the element that marks the table. Its data is that of a pool with the table.
func (t *hashTable) mark(w program.Writer) program.Element {
	value := t.number << program.TableShift
	if !t.withPorts {
		value |= 1
	}
	return w.Element("", func(b *program.Builder) { b.Word(t.number << program.TableShift) }, func(b *program.Builder) { b.Word(value) })
}

// setMark marks a table, or takes its mark away.
func (t *hashTable) setMark(w program.Writer, marked bool) {
	if t.marked != marked {
		t.marked = marked
		w.Change(program.HashTables, marked, t.mark(w))
	}
}

// leave has a table leave that has had no pool since an earlier transaction. It reports whether the table is off the list of
// idle ones.
func (h *Tables) leave(w program.Writer, table *hashTable) bool {
	empty := table.users == 0 && table.slots != nil
	if table.setMark(w, empty); empty && table.emptied == h.round {
		return false
	}
	if table.idle = false; empty {
		delete(h.byKey, table.key)
		h.leaving.add(table)
		if h.leaving.retired == nil {
			h.leaving.retired = map[string]int{}
		}
		h.leaving.retired[table.owner] += len(table.slots)
	}
	return true
}

func (l *leaving) add(table *hashTable) { l.tables = append(l.tables, table) }

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
func (h *Tables) DeletePiece(w program.Writer, most int) (n int) {
	for l := &h.leaving; n < most && len(l.tables) > 0; {
		t := l.tables[0]
		rest := max(0, len(t.slots)-(most-n))
		for slot := rest; slot < len(t.slots); slot++ {
			w.Remove(t.set(), t.slotElement(w, slot, netip.AddrPort{}))
		}
		n += len(t.slots) - rest
		if t.slots = t.slots[:rest]; rest == 0 {
			t.setMark(w, false)
			delete(h.numbers, t.number)
			l.tables = l.tables[1:]
		}
	}
	return n
}

// Keep has a table of the kernel leave in pieces, unless a pool has it. It adds the table's elements. Call it between
// Rewrite and Write.
func (h *Tables) Keep(w program.Writer, number uint32, withPorts bool, slots iter.Seq[netip.AddrPort]) {
	if h.numbers[number] != nil {
		return
	}
	t, index := &hashTable{number: number, withPorts: withPorts, marked: true}, map[netip.AddrPort]uint16{}
	for at := range slots {
		i, known := index[at]
		if !known {
			i = uint16(len(index))
			index[at] = i
			t.endpoints = append(t.endpoints, contents.Endpoint{Addr: at})
		}
		t.slots = append(t.slots, i)
	}
	if len(t.slots) > 0 {
		h.numbers[number] = t
		h.leaving.add(t)
		t.list(w, 0, len(t.slots))
	}
}
