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
