package table

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents/elements"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
)

// This file finds out what the kernel has, and enters it into the ledger. The start loads all elements, an event of another
// process the keys that it touched, the periodic check and the recheck some accounts at a time.

// holds reports whether the kernel has an element as the ledger has it.
func (tb *Table) holds(found *kernel.Found, a *ledger.Account, r *ledger.Record) bool {
	d := &tb.Defs[r.Set]
	if d.LeadsToChains() {
		return string(found.Data) == string(r.Data)
	}
	if d.Ports && !kernel.SameValue(found.Key, r.Key) {
		return false // another range is in its way
	}
	return (!d.IsMap() || kernel.SameValue(found.Data, r.Data)) && found.Comment == tb.Want.Comment(a, r)
}

// LoadAll enters everything that the kernel has.
func (tb *Table) LoadAll(found kernel.Existing, k kernel.NFTables) error {
	var has [program.SetCount]presence
	for id := range program.SetCount {
		d := &tb.Defs[id]
		if d.Dynamic || id == program.Generation {
			continue
		}
		if rows, read := tb.image.Rows[id]; read && found.HasSet(d) {
			has[id].rows = rows
		} else if found.HasSet(d) {
			has[id].elements = map[string]kernel.Found{}
			err := k.DumpElements(tb.Family, id, func(e kernel.Found) { has[id].elements[program.ElementID(e.Key, e.IntervalEnd)] = e.Clone() })
			if err != nil {
				return readError(id, err)
			}
		}
	}
	tb.Want.KeepTables(tb.image.Image)
	tb.Want.Assume()
	tb.image = nil
	tb.Want.Each((*ledger.Account).Wanted, func(a *ledger.Account, r *ledger.Record) {
		if is := has[r.Set].take(tb, a, r); is != ledger.Same {
			tb.Want.Correct(a, r, is)
		}
	})
	for id := range program.SetCount {
		has[id].rest(id, tb.Want.Correct)
	}
	tb.Want.Corrected()
	return nil
}

// presence is what the kernel has in a set. Slots are in rows: there may be hundreds of thousands, so nobody makes a map of them.
// While the kernel resizes the hash table of a large set, some time after a change, a dump leaves out elements and repeats others.
// To add an element that is there does no harm.
type presence struct {
	elements map[string]kernel.Found
	rows     map[uint32]elements.Row
}

// take takes an element out, and returns what the kernel has of it.
func (s *presence) take(tb *Table, a *ledger.Account, r *ledger.Record) ledger.State {
	if s.rows != nil {
		number, slot := binary.NativeEndian.Uint32(r.Key), binary.NativeEndian.Uint32(r.Key[4:])
		row := s.rows[number]
		is := row.At(slot)
		if is == nil {
			return ledger.Missing
		}
		same := kernel.SameValue(is, r.Data)
		clear(is)
		return state(same)
	}
	id := program.ElementID(r.Key, r.End)
	is, has := s.elements[id]
	if !has {
		return ledger.Missing
	}
	delete(s.elements, id)
	return state(tb.holds(&is, a, r))
}

func state(same bool) ledger.State {
	if same {
		return ledger.Same
	}
	return ledger.Other
}

// rest enters the elements of a set that nobody has taken out, in an order that depends on nothing else.
func (s *presence) rest(set program.SetID, enter differs) {
	for _, id := range slices.Sorted(maps.Keys(s.elements)) {
		e := s.elements[id]
		enter(nil, &ledger.Record{Set: set, Key: e.Key, End: e.IntervalEnd}, ledger.Other)
	}
	for _, number := range slices.Sorted(maps.Keys(s.rows)) {
		row := s.rows[number]
		for slot := range uint32(row.Slots()) {
			if row.At(slot) != nil {
				var key program.Builder
				key.Word(number)
				key.Word(slot)
				enter(nil, &ledger.Record{Set: set, Key: key.Arena}, ledger.Other)
			}
		}
	}
}

// differs is called for an element that the kernel does not have as the ledger has it. An element of nobody has no account.
type differs func(a *ledger.Account, r *ledger.Record, is ledger.State)

// lookups are elements that are looked up, many of a set with one request.
type lookups struct {
	tb    *Table
	k     kernel.NFTables
	sets  [program.SetCount][]lookup
	arena []byte
	differs
}

type lookup struct {
	*ledger.Account
	ledger.Record
}

// add adds an element, and asks for those of its set when there are enough. The ends of a range cannot be looked up: sets of
// ranges are small, and are read as a whole.
func (l *lookups) add(a *ledger.Account, r *ledger.Record) error {
	if l.tb.Defs[r.Set].Interval {
		return nil
	}
	start := len(l.arena)
	l.arena = append(append(l.arena, r.Key...), r.Data...)
	end := start + len(r.Key)
	one := lookup{a, *r}
	one.Key, one.Data = l.arena[start:end:end], l.arena[end:len(l.arena):len(l.arena)]
	l.sets[r.Set] = append(l.sets[r.Set], one)
	if len(l.sets[r.Set]) == kernel.RowLength {
		return l.ask(r.Set)
	}
	return nil
}

// finish asks for the elements that are left.
func (l *lookups) finish() error {
	for id := range program.SetCount {
		if err := l.ask(id); err != nil {
			return err
		}
	}
	l.arena = nil
	return nil
}

// ask asks for the elements of a set: all at once, and one by one if these are not all as they should be.
func (l *lookups) ask(id program.SetID) error {
	list := l.sets[id]
	l.sets[id] = list[:0]
	if len(list) == 0 {
		return nil
	}
	has, err := l.hasRow(id, list)
	if err != nil || has {
		return readError(id, err)
	}
	for i := range list {
		if err := l.tb.lookUp(l.k, list[i].Account, &list[i].Record, l.differs); err != nil {
			return err
		}
	}
	return nil
}

func (l *lookups) hasRow(id program.SetID, row []lookup) (bool, error) {
	keys := make([][]byte, len(row))
	for i := range row {
		keys[i] = row[i].Key
	}
	i, same := 0, true
	_, err := l.k.LookupRow(l.tb.Family, id, keys, func(found kernel.Found) {
		same = same && i < len(row) && l.tb.holds(&found, row[i].Account, &row[i].Record)
		i++
	})
	return same && i == len(row), err
}

func readError(id program.SetID, err error) error {
	if err != nil {
		return fmt.Errorf("read %s: %w", id.Name(), err)
	}
	return nil
}

// lookUp asks for an element. A range that is in its way belongs to nobody.
func (tb *Table) lookUp(k kernel.NFTables, a *ledger.Account, r *ledger.Record, differs differs) error {
	found, exists, err := k.Lookup(tb.Family, r.Set, r.Key)
	switch {
	case err != nil:
		return readError(r.Set, err)
	case !exists:
		differs(a, r, ledger.Missing)
	case tb.Defs[r.Set].Ports && !kernel.SameValue(found.Key, r.Key):
		differs(a, r, ledger.Missing)
		differs(nil, &ledger.Record{Set: r.Set, Key: found.Key, End: found.IntervalEnd}, ledger.Other)
	case !tb.holds(&found, a, r):
		differs(a, r, ledger.Other)
	}
	return nil
}

// loadKeys enters what the kernel has of some keys of a set.
func (tb *Table) loadKeys(k kernel.NFTables, id program.SetID, touched map[string]bool) (err error) {
	keys := maps.Clone(touched)
	delete(keys, tb.stamps.key(id))
	tb.Want.Each((*ledger.Account).Applied, func(a *ledger.Account, r *ledger.Record) {
		if r.Set == id && keys[string(r.Key)] && err == nil {
			delete(keys, string(r.Key))
			err = tb.lookUp(k, a, r, tb.Want.Correct)
		}
	})
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if err != nil {
			return err
		}
		found, exists, readErr := k.Lookup(tb.Family, id, []byte(key))
		if err = readError(id, readErr); exists && kernel.SameValue(found.Key, []byte(key)) {
			tb.Want.Correct(nil, &ledger.Record{Set: id, Key: found.Key, End: found.IntervalEnd}, ledger.Other)
		}
	}
	return err
}

// loadSet enters what the kernel has in a set. It reads the whole set.
func (tb *Table) loadSet(k kernel.NFTables, id program.SetID) error {
	has := presence{elements: map[string]kernel.Found{}}
	err := k.DumpElements(tb.Family, id, func(e kernel.Found) { has.elements[program.ElementID(e.Key, e.IntervalEnd)] = e.Clone() })
	if err != nil {
		return readError(id, err)
	}
	delete(has.elements, tb.stamps.key(id))
	tb.Want.Each((*ledger.Account).Applied, func(a *ledger.Account, r *ledger.Record) {
		if r.Set != id {
			return
		}
		if is := has.take(tb, a, r); is != ledger.Same {
			tb.Want.Correct(a, r, is)
		}
	})
	has.rest(id, tb.Want.Correct)
	return nil
}
