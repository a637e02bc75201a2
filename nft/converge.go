package nft

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// An engine that starts, or that does not know what the kernel has, writes the rules as a whole, and of the elements
// only what differs from what it reads. So elements that stay keep their counters, and the transaction is small. If the
// kernel refuses it, because something else changed the table after it was read, the next transaction writes everything.

// differs reports whether the table can be changed by a difference: it is there, and it has one stamp. The stamp leaves
// with the transaction, so the kernel refuses it if another engine has written the table after it was read.
func (tb *table) differs(was existing, k kernel) (bool, error) {
	if !tb.keeps(was) || !tb.canBeRead(was) {
		return false, nil
	}
	fresh, err := tb.image.current(k)
	if err == nil && !fresh {
		tb.image, err = tb.readImage(k)
	}
	if err != nil || tb.image == nil || len(tb.image.stamps) != 1 {
		return false, err
	}
	key := tb.image.stamps[0].key
	if len(key) != 8 {
		return false, nil
	}
	tb.stamp = stamp{instance: binary.NativeEndian.Uint32(key), generation: binary.NativeEndian.Uint32(key[4:])}
	return true, nil
}

// rewritten reports whether the elements of a set are written as a whole. Such sets are small. The elements of dispatch
// refer to chains, and the kernel deletes a chain only if no element does.
func (tb *table) rewritten(id setID) bool { return id == idDispatch || tb.defs[id].interval }

// converge writes what makes the kernel's table equal to the mirror.
func (tb *table) converge(t *Transaction, found existing, k kernel) error {
	tb.frame(t, found, true, func(id setID) bool { return !tb.rewritten(id) })
	want := &Transaction{}
	tb.buildElements(want)
	tb.writeShared(want)
	for id := range tb.defs {
		id, d := setID(id), &tb.defs[id]
		var err error
		switch {
		case d.dynamic || id == idGeneration:
		case !found.hasSet(d) || tb.rewritten(id):
			for _, e := range want.elements[tb.family.index()][id].add {
				t.add(tb.family, id, t.copied(e, want.arena))
			}
		case tb.image.rows[id] != nil:
			tb.compareRows(t, id, want)
		default:
			err = compareSet(tb, t, k, id, want)
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", d.name, err)
		}
	}
	tb.image = nil
	return nil
}

// compareRows writes the difference between the slots that the kernel has and the wanted ones.
func (tb *table) compareRows(t *Transaction, id setID, want *Transaction) {
	rows := tb.image.rows[id]
	wanted := make(map[uint32][]bool, len(rows))
	for number, r := range rows {
		wanted[number] = make([]bool, r.slots())
	}
	for _, e := range want.elements[tb.family.index()][id].add {
		key := e.keyBytes(want.arena)
		number, slot := binary.NativeEndian.Uint32(key), binary.NativeEndian.Uint32(key[4:])
		is := rows[number].at(slot)
		if is != nil {
			wanted[number][slot] = true
		}
		if is != nil && sameValue(is, e.dataBytes(want.arena)) {
			continue
		}
		if is != nil {
			tb.deleteSlot(t, id, number, slot)
		}
		t.add(tb.family, id, t.copied(e, want.arena))
	}
	for _, number := range slices.Sorted(maps.Keys(rows)) {
		r := rows[number]
		for slot := range uint32(r.slots()) {
			if !wanted[number][slot] && r.at(slot) != nil {
				tb.deleteSlot(t, id, number, slot)
			}
		}
	}
}

func (tb *table) deleteSlot(t *Transaction, id setID, number, slot uint32) {
	t.del(tb.family, id, t.element("", func(b *builder) { b.word(number); b.word(slot) }, nil))
}
