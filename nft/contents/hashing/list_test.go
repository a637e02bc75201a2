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
