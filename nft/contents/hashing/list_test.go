package hashing

import (
	"encoding/binary"
	"testing"

	"github.com/verdict-proxy/verdict/nft/program"
)

// TestListSlot: one slot is listed, if there is such a table and the key is in its map.
func TestListSlot(t *testing.T) {
	const number = program.FirstTable + 1
	h := Tables{numbers: map[uint32]*hashTable{
		number: {number: number, slots: make([]uint16, 3), endpoints: maglevEndpoints(1)}, 1: {number: 1, slots: make([]uint16, 3), endpoints: maglevEndpoints(1)},
	}}
	for _, tt := range []struct {
		id     program.SetID
		number uint32
		slot   uint32
		want   int
	}{
		{program.HashSlots, number, 0, 1},
		{program.HashSlots, number, 2, 1},
		{program.HashSlots, number, 3, 0},
		{program.HashSlots, number + 1, 0, 0},
		{program.HashSlots, 1, 0, 0}, // a pool
		{program.Endpoints, number, 0, 0},
	} {
		w := program.NewWriter(program.IPv4)
		key := binary.NativeEndian.AppendUint32(nil, tt.number<<program.TableShift)
		h.ListSlot(w, tt.id, binary.NativeEndian.AppendUint32(key, tt.slot))
		if got, _ := w.Elements(); got != tt.want {
			t.Errorf("%+v: %d elements", tt, got)
		}
	}
	w := program.NewWriter(program.IPv4)
	h.ListSlot(w, program.HashSlots, []byte{1})
	if n, _ := w.Elements(); n != 0 {
		t.Errorf("%d elements for a key that is no slot", n)
	}
}

// TestTablesComeAndGo: a table that no pool has when the transaction is written is not written, and can come later. When
// one has gone, its number is free.
func TestTablesComeAndGo(t *testing.T) {
	h, one, other := NewTables(), NewPool(2), NewPool(4)
	write := func(when string, pl *Pool, endpoints, slots, tables int) {
		t.Helper()
		h.Update(pl, maglevEndpoints(endpoints))
		w := program.NewWriter(program.IPv4)
		h.Write(w)
		h.DeletePiece(w, 5000)
		if n := len(w.Added(program.HashSlots)); n != slots || h.Count() != tables || len(h.Numbers()) != tables {
			t.Errorf("%s: %d slots, %d tables, numbers %v; want %d slots, %d tables", when, n, h.Count(), h.Numbers(), slots, tables)
		}
	}
	h.Update(one, maglevEndpoints(2))
	write("changed twice", one, 3, 4093, 1)
	write("another pool", other, 2, 4093, 2)
	write("it has no table", other, 0, 0, 2) // a packet may still use it
	write("the table goes", other, 0, 0, 1)
}

// TestNumbersOfLeavingTables: a number is not free before the last slot of its table is gone. Tables that leave do not use up
// what others need, unless there are very many.
func TestNumbersOfLeavingTables(t *testing.T) {
	h, one := NewTables(), NewPool(2)
	write := func(endpoints, slots int) (number uint32) {
		h.Update(one, maglevEndpoints(endpoints))
		h.Write(program.NewWriter(program.IPv4))
		h.DeletePiece(program.NewWriter(program.IPv4), slots)
		if one.HasTable() {
			number = one.table.number
		}
		return number
	}
	first := write(2, 0)
	write(0, 0)
	write(0, 4092)
	h.next = first
	if second := write(3, 0); second == first || h.Count() != 1 || !h.Leaving() {
		t.Errorf("a table with number %d while %d leaves; %d tables, some leave: %t", second, first, h.Count(), h.Leaving())
	}
	write(0, 0)
	write(0, 1) // the last slot of the first one
	h.next = first
	if again := write(4, 0); again != first {
		t.Errorf("a table with number %d, and %d is free", again, first)
	}
	for range program.MaxTables/4 + 5 {
		h.leaving.add(&hashTable{})
	}
	if n := h.Count(); n < 5 || n > 10 {
		t.Errorf("%d tables count", n)
	}
}
