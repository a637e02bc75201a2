package nft

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Repair undoes what another process did to our tables. Where elements changed, it compares them with the kernel and
// writes the difference. Where chains and rules changed, it writes those that are not as they should be. Both tables are
// compared as a whole if the process replaced tables or sets, or if changes are collected already. After an error the
// next Apply does that.
//
// If the kernel dropped events, or Check found the change, Repair begins to look at everything. While the result says
// that there is More, the caller calls Repair with an empty interference, and it looks at the next part.
//
// Before the first Set and SetGlobals, Repair does what Mend does.
func (e *Engine) Repair(i Interference) (Result, error) {
	if i.Empty() {
		return e.look(nextPart)
	}
	if !e.planned {
		return e.mendEarly()
	}
	// A table that was deleted and made again may be intact and have the elements of another time.
	e.rebuild = e.rebuild || i.replaced || e.collected()
	t := &Transaction{}
	for _, tb := range e.active {
		if err := e.repairTable(t, tb, &i); err != nil {
			e.rebuild = true
			return Result{Outcome: Unknown, Text: t.String}, err
		}
	}
	if e.rebuild {
		return e.Apply()
	}
	r, err := e.repair(t)
	if err != nil || !i.Lost && !i.unheard {
		return r, err
	}
	e.beginLook()
	looked, err := e.look(firstPart)
	looked.add(&r)
	return looked, err
}

// add sums up two results.
func (r *Result) add(o *Result) {
	r.Added, r.Deleted, r.Bytes, r.Kernel = r.Added+o.Added, r.Deleted+o.Deleted, r.Bytes+o.Bytes, r.Kernel+o.Kernel
}

// repairTable writes the differences that an interference made. It demands a rebuild if they would not suffice.
func (e *Engine) repairTable(t *Transaction, tb *table, i *Interference) error {
	if e.rebuild {
		return nil
	}
	was, err := e.conn.survey(tb.family)
	if err == nil {
		e.rebuild, err = e.lostContents(tb, was)
	}
	if err != nil {
		return fmt.Errorf("read table %s %s: %w", tb.family, TableName, err)
	}
	if e.rebuild {
		return nil
	}
	tb.noteFlags(was)
	changed := !tb.intact(was) || tb.isRetuned(was)
	if changed {
		tb.convergeChains(t, was)
		err = tb.compareDispatch(t, e.conn)
	}
	if err != nil {
		return err
	}
	return tb.compare(t, e.conn, i, changed)
}

// compareDispatch compares the map that leads to chains: the elements follow a chain that another process renames.
func (tb *table) compareDispatch(t *Transaction, k kernel) error {
	want := &Transaction{}
	tb.listSmallSets(want)
	if err := compareSet(tb, t, k, idDispatch, want); err != nil {
		return fmt.Errorf("read %s %s %s: %w", tb.family, TableName, mapDispatch, err)
	}
	return nil
}

// lostContents reports whether a table lacks a set or the stamp of the latest transaction. Then its elements may be any.
func (e *Engine) lostContents(tb *table, was existing) (bool, error) {
	if !tb.keeps(was) {
		return true, nil
	}
	for id := range tb.defs {
		if !was.hasSet(&tb.defs[id]) {
			return true, nil
		}
	}
	stamped, err := e.hasStamp(tb, tb.stamp)
	return !stamped, err
}

// collected reports whether changes wait for the next Apply.
func (e *Engine) collected() bool {
	return !e.tx.Empty() || slices.ContainsFunc(e.active, func(tb *table) bool { return len(tb.hash.touched) > 0 })
}

// repair sends the difference.
func (e *Engine) repair(t *Transaction) (Result, error) {
	r := Result{Text: t.String}
	r.Added, r.Deleted = t.Elements()
	kept := e.tx
	e.tx, e.whole, e.fresh = t, families{}, false
	err := e.commitChanges(&r)
	e.tx = kept
	e.rebuild = r.Outcome != Applied
	e.applies++
	if err != nil {
		err = fmt.Errorf("undo changes of another process: %w", err)
	}
	return r, err
}

// commitChanges sends the transaction, if it has changes. A table may need only other flags.
func (e *Engine) commitChanges(r *Result) error {
	if e.tx.Empty() {
		return e.setFlags(r)
	}
	return e.commit(r)
}

// compare writes the difference between the kernel's sets and the wanted ones. The affinity map is left out: its
// entries are those of clients. So is the map that leads to chains, if it was compared before.
func (tb *table) compare(t *Transaction, k kernel, i *Interference, dispatched bool) error {
	var want *Transaction
	for id := range tb.defs {
		d := &tb.defs[id]
		at := i.sets[tableSet{family: tb.family, set: d.name}]
		if d.dynamic || at == nil || dispatched && setID(id) == idDispatch || at.many && i.unheard { // the look comes to large sets
			continue
		}
		if want == nil {
			want = tb.wanted(i)
		}
		compare := compareSet
		if !at.many && !d.interval {
			compare = at.compare
		}
		if err := compare(tb, t, k, setID(id), want); err != nil {
			return fmt.Errorf("read %s %s %s: %w", tb.family, TableName, d.name, err)
		}
	}
	return nil
}

// wanted lists what the sets of the table are to have, as far as an interference touched them.
func (tb *table) wanted(i *Interference) *Transaction {
	keys := keysOf{}
	for id := range tb.defs {
		at := i.sets[tableSet{family: tb.family, set: tb.defs[id].name}]
		if at == nil {
			continue
		}
		if at.many && !i.unheard {
			return tb.everything()
		}
		keys[setID(id)] = at.bytes()
	}
	return tb.owned(keys)
}

// bytes are the keys.
func (at *touched) bytes() (keys [][]byte) {
	for key := range at.keys {
		keys = append(keys, []byte(key))
	}
	return keys
}

// compare looks at the touched elements only.
func (at *touched) compare(tb *table, t *Transaction, k kernel, id setID, want *Transaction) error {
	wanted := map[string]*element{}
	list := want.elements[tb.family.index()][id].add
	for i := range list {
		if key := list[i].keyBytes(want.arena); at.keys[string(key)] {
			wanted[string(key)] = &list[i]
		}
	}
	for _, key := range slices.Sorted(maps.Keys(at.keys)) {
		if err := tb.mend(t, k, id, want, []byte(key), wanted[key]); err != nil {
			return err
		}
	}
	return nil
}

// mend writes what makes the element with a key as it is to be; nil: there is to be none.
func (tb *table) mend(t *Transaction, k kernel, id setID, want *Transaction, key []byte, e *element) error {
	d := &tb.defs[id]
	found, exists, err := k.lookup(tb.family, d.name, key)
	if err != nil || exists && e != nil && found.holds(*e, want.arena, d) {
		return err
	}
	if exists {
		t.del(tb.family, id, t.found(&found))
	}
	if e != nil {
		t.add(tb.family, id, t.copied(*e, want.arena))
	}
	return nil
}

// everything lists the elements that the kernel's table is to have, as of the last transaction.
func (tb *table) everything() *Transaction {
	t := &Transaction{}
	tb.listSmallSets(t)
	for _, p := range tb.ports {
		tb.listPort(t, p)
	}
	for _, table := range tb.hash.byKey {
		tb.writeTableSlots(t, table, &hashTable{})
	}
	for _, id := range sharedSets() {
		for _, addr := range tb.sharedAddresses(id) {
			t.add(tb.family, id, addressElement(t, id, addr))
		}
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
