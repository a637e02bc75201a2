package nft

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// An engine that starts, or that does not know what the kernel has, reads what is there, and writes what differs. So
// elements that stay keep their counters, and the transaction is small. If the kernel refuses it, because something
// else changed the table after it was read, the next transaction writes everything.

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

// converge writes what makes the kernel's table equal to the mirror.
func (tb *table) converge(t *Transaction, found existing, k kernel) error {
	tb.noteFlags(found)
	tb.convergeChains(t, found)
	want := &Transaction{}
	for _, id := range slices.Sorted(maps.Keys(tb.classes.byID)) {
		want.add(tb.family, idDispatch, dispatchElement(want, tb.classes.byID[id], id))
	}
	tb.buildElements(want)
	tb.writeShared(want)
	for id := range tb.defs {
		id, d := setID(id), &tb.defs[id]
		tb.totals[id] = len(want.elements[tb.family.index()][id].add)
		var err error
		switch {
		case d.dynamic || id == idGeneration:
		case !found.hasSet(d):
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
	tb.totals[idGeneration] = 1
	tb.image = nil
	return nil
}

// convergeChains writes the chains that are not as they should be, and the sets that cannot stay. First all of those
// chains lose their rules, because these may refer to sets and to each other. Chains that leave are deleted last,
// because the map dispatch refers to them until then.
func (tb *table) convergeChains(t *Transaction, found existing) {
	chains := tb.wantedChains()
	var changed []chainDef
	for _, name := range slices.Sorted(maps.Keys(chains)) {
		c := chains[name]
		if !tb.hasChain(found, &c) || tb.usesLostSet(&c, found) {
			changed = append(changed, c)
		}
	}
	tb.clearChains(t, found, chains, changed, func(name string) bool {
		_, wanted := chains[name]
		return !wanted
	})
	tb.dropSets(t, found, func(*setDef) bool { return false })
	tb.addSets(t, true, found)
	tb.writeChains(t, changed)
}

// clearChains takes the rules out of chains that change or leave. It deletes those that leave, and those that change their
// shape.
func (tb *table) clearChains(
	t *Transaction, found existing, chains map[string]chainDef, changed []chainDef, leaves func(name string) bool,
) {
	f := tb.family
	for _, name := range slices.Sorted(maps.Keys(found.chains)) {
		c, wanted := chains[name]
		if leaves(name) || slices.ContainsFunc(changed, func(c chainDef) bool { return c.name == name }) {
			t.operation(operation{kind: opFlushRules, family: f, name: name})
		}
		if leaves(name) {
			t.afterwards(operation{kind: opDeleteChain, family: f, name: name})
		} else if wanted && c.shape() != found.chains[name] {
			t.operation(operation{kind: opDeleteChain, family: f, name: name})
		}
	}
}

// writeChains adds chains, and then their rules, which may refer to other chains.
func (tb *table) writeChains(t *Transaction, chains []chainDef) {
	for _, c := range chains {
		t.operation(operation{kind: opAddChain, family: tb.family, name: c.name, chain: &c})
	}
	for _, c := range chains {
		for _, r := range c.rules {
			t.operation(operation{kind: opAddRule, family: tb.family, name: c.name, rule: r})
		}
	}
}

// usesLostSet reports whether a rule of the chain looks up a set that cannot stay.
func (tb *table) usesLostSet(c *chainDef, found existing) bool {
	lost := func(set string) bool {
		for id := range tb.defs {
			if d := &tb.defs[id]; d.name == set {
				return !found.hasSet(d)
			}
		}
		return false
	}
	return slices.ContainsFunc(c.rules, func(r rule) bool {
		sets, _ := r.references()
		return slices.ContainsFunc(sets, lost)
	})
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
