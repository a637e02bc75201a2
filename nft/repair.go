package nft

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Repair undoes what another process did to our tables. Where only elements changed, it compares the sets in question
// with the kernel, element by element, and writes the difference. Otherwise, or when changes are collected already, it
// writes both tables as a whole. After an error the next Apply writes everything.
func (e *Engine) Repair(i Interference) (Result, error) {
	for _, tb := range e.active {
		_, sound, err := e.sound(tb)
		if err != nil {
			e.rebuild = true
			err = fmt.Errorf("read table %s %s: %w", tb.family, TableName, err)
			return Result{Outcome: Unknown, Text: e.tx.String}, err
		}
		e.rebuild = e.rebuild || !sound
	}
	// A table that was deleted and made again may be intact and have the elements of another time.
	if e.rebuild || i.Structure || e.collected() {
		e.rebuild = true
		return e.Apply()
	}
	t := &Transaction{}
	for _, tb := range e.active {
		if err := tb.compare(t, e.conn, &i); err != nil {
			e.rebuild = true
			return Result{Outcome: Unknown, Text: t.String}, err
		}
	}
	return e.repair(t)
}

// collected reports whether changes wait for the next Apply.
func (e *Engine) collected() bool {
	return !e.tx.Empty() || slices.ContainsFunc(e.active, func(tb *table) bool { return len(tb.hash.touched) > 0 })
}

// repair sends the difference.
func (e *Engine) repair(t *Transaction) (Result, error) {
	r := Result{Text: t.String}
	r.Added, r.Deleted = t.Elements()
	if t.Empty() {
		return r, nil
	}
	kept := e.tx
	e.tx, e.whole = t, false
	err := e.commit(&r)
	e.tx = kept
	e.rebuild = r.Outcome != Applied
	e.applies++
	if err != nil {
		err = fmt.Errorf("undo changes of another process: %w", err)
	}
	return r, err
}

// compare writes the difference between the kernel's sets and the wanted ones. The affinity map is left out: its
// entries are those of clients.
func (tb *table) compare(t *Transaction, k kernel, i *Interference) error {
	var want *Transaction
	for id := range tb.defs {
		d := &tb.defs[id]
		at := i.sets[tableSet{family: tb.family, set: d.name}]
		if d.dynamic || at == nil && !i.Lost {
			continue
		}
		if want == nil {
			want = tb.everything()
		}
		compare := compareSet
		if at != nil && !at.many && !d.interval {
			compare = at.compare
		}
		if err := compare(tb, t, k, setID(id), want); err != nil {
			return fmt.Errorf("read %s %s %s: %w", tb.family, TableName, d.name, err)
		}
	}
	return nil
}

// compare looks at the touched elements only.
func (at *touched) compare(tb *table, t *Transaction, k kernel, id setID, want *Transaction) error {
	d := &tb.defs[id]
	wanted := map[string]element{}
	for _, e := range want.elements[tb.family.index()][id].add {
		if key := e.keyBytes(want.arena); at.keys[string(key)] {
			wanted[string(key)] = e
		}
	}
	for _, key := range slices.Sorted(maps.Keys(at.keys)) {
		e, is := wanted[key]
		found, exists, err := k.lookup(tb.family, d.name, []byte(key))
		if err != nil {
			return err
		}
		if exists && is && found.holds(e, want.arena, d) {
			continue
		}
		if exists {
			t.del(tb.family, id, t.found(&found))
		}
		if is {
			t.add(tb.family, id, t.copied(e, want.arena))
		}
	}
	return nil
}

// everything lists the elements that the kernel's table is to have, as of the last transaction.
func (tb *table) everything() *Transaction {
	t := &Transaction{}
	for id, c := range tb.classes.byID {
		t.add(tb.family, idDispatch, dispatchElement(t, c, id))
	}
	for _, p := range tb.ports {
		tb.buildPort(t, p)
	}
	tb.everyHashTable(t)
	tb.updateRanges(t, idServiceCIDRs, nil, tb.written.ServiceCIDRs)
	tb.updateRanges(t, idPodCIDRs, nil, tb.written.PodCIDRs)
	for _, e := range tb.nodePortAddresses(t, tb.written) {
		t.add(tb.family, e.set, e.element)
	}
	for ip := range tb.clusterIPs.count {
		t.add(tb.family, idClusterIPs, t.element("", func(b *builder) { b.addr(ip) }, nil))
	}
	for ip := range tb.hairpin.count {
		t.add(tb.family, idHairpin, t.element("", func(b *builder) { b.addr(ip); b.addr(ip) }, nil))
	}
	t.add(tb.family, idGeneration, tb.stampElement(t, tb.stamp, tb.fingerprint()))
	for a := range tb.guarded {
		t.add(tb.family, idIPVSAddresses, t.element("", func(b *builder) { b.addr(a) }, nil))
	}
	for a := range tb.unguarded { // leaves with the next transaction
		t.add(tb.family, idIPVSAddresses, t.element("", func(b *builder) { b.addr(a) }, nil))
	}
	return t
}

// foundElement is an element that the kernel has.
type foundElement struct {
	key, data   []byte
	comment     string
	intervalEnd bool
	packets     uint64        // of its counter
	expires     time.Duration // from now; 0: never
}

func (f *foundElement) clone() foundElement {
	return foundElement{
		key: slices.Clone(f.key), data: slices.Clone(f.data), comment: f.comment, intervalEnd: f.intervalEnd,
		packets: f.packets, expires: f.expires,
	}
}

// id names an element within its set.
func (f *foundElement) id() string {
	if f.intervalEnd {
		return string(f.key) + "end"
	}
	return string(f.key)
}

func (e element) id(arena []byte) string {
	f := foundElement{key: e.keyBytes(arena), intervalEnd: e.intervalEnd}
	return f.id()
}

// compareSet reads a set and writes its difference to the wanted elements. While the kernel resizes the hash table of a
// large set, some time after a change, a dump leaves out elements and repeats others. To add an element that is there
// does no harm; a repeated one must not count as foreign.
func compareSet(tb *table, t *Transaction, k kernel, id setID, want *Transaction) error {
	d, list := &tb.defs[id], want.elements[tb.family.index()][id].add
	wanted := make(map[string]element, len(list))
	for _, e := range list {
		wanted[e.id(want.arena)] = e
	}
	held, foreign := make(map[string]bool, len(list)), map[string]foundElement{}
	err := k.dumpElements(tb.family, d.name, func(found foundElement) {
		key := found.id()
		e, is := wanted[key]
		switch {
		case is && found.holds(e, want.arena, d):
			held[key] = true
		default:
			foreign[key] = found.clone()
		}
	})
	if err != nil {
		return err
	}
	if d.interval && len(foreign)+len(list)-len(held) > 0 {
		return tb.replaceRanges(t, id, want)
	}
	for _, key := range slices.Sorted(maps.Keys(foreign)) { // equal differences make equal transactions
		e := foreign[key]
		t.del(tb.family, id, t.found(&e))
	}
	for _, e := range list {
		if !held[e.id(want.arena)] {
			t.add(tb.family, id, t.copied(e, want.arena))
		}
	}
	return nil
}

// replaceRanges writes a set of ranges as a whole. Their ends are elements of their own, and the kernel refuses to
// delete one without the other.
func (tb *table) replaceRanges(t *Transaction, id setID, want *Transaction) error {
	t.operation(operation{kind: opFlushSet, family: tb.family, name: tb.defs[id].name})
	for _, e := range want.elements[tb.family.index()][id].add {
		t.add(tb.family, id, t.copied(e, want.arena))
	}
	return nil
}

// holds reports whether an element that the kernel has is as it should be.
func (f *foundElement) holds(e element, arena []byte, d *setDef) bool {
	if d.leadsToChains() {
		return string(f.data) == e.label
	}
	return sameValue(f.data, e.dataBytes(arena)) && f.comment == e.label
}

// sameValue ignores the padding behind the last component of a concatenation.
func sameValue(a, b []byte) bool {
	return bytes.Equal(bytes.TrimRight(a, "\x00"), bytes.TrimRight(b, "\x00"))
}

// found copies an element of the kernel; it is to be deleted, so its data does not matter.
func (t *Transaction) found(f *foundElement) element {
	start := t.mark()
	t.arena = append(t.arena, f.key...)
	return element{offset: start, key: uint8(len(f.key)), intervalEnd: f.intervalEnd}
}

// copied copies an element from another transaction.
func (t *Transaction) copied(e element, arena []byte) element {
	bytes := arena[e.offset : e.offset+uint32(e.key)+uint32(e.data)]
	e.offset = t.mark()
	t.arena = append(t.arena, slices.Clone(bytes)...)
	return e
}
