package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"github.com/verdict-proxy/verdict/nft/contents/mirror"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// This file compares what the kernel has with what it is to have. Whoever compares makes scopes: the start has one for
// each set, an event has one for the keys that it touched, and the periodic check and the recheck have some service ports
// at a time. They all get the same result.

// scope is which elements of a set are compared.
type scope struct {
	set  program.SetID
	def  *program.Set
	want program.Writer    // has the wanted elements
	list []program.Element // of these, those in the scope

	others [][]byte              // keys of elements that nobody wants, and that may be there
	whole  bool                  // all elements of the set are in the scope
	rows   map[uint32]mirror.Row // all elements of a map of slots, if they were read before; empty: the set is empty
}

// scopeOf is the scope of a whole set.
func (fm *form) scopeOf(id program.SetID, want program.Writer) scope {
	return scope{set: id, def: &fm.Defs[id], want: want, list: want.Added(id), whole: true}
}

// scopeOfPart is the scope of some elements.
func (fm *form) scopeOfPart(p mirror.Part) scope {
	return scope{set: p.Set, def: &fm.Defs[p.Set], want: p.Want, list: p.List, whole: p.Whole}
}

// touchedScope has the touched elements only.
func (fm *form) touchedScope(id program.SetID, at *kernel.Touched, want program.Writer) scope {
	s := scope{set: id, def: &fm.Defs[id], want: want}
	others := maps.Clone(at.Keys)
	for _, e := range want.Added(id) {
		if key := string(e.Key(want.Arena)); others[key] {
			s.list = append(s.list, e)
			delete(others, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(others)) {
		s.others = append(s.others, []byte(key))
	}
	return s
}

// difference is how the elements in a scope differ from the wanted ones.
type difference struct {
	*scope
	missing []program.Element // the kernel does not have the key
	wrong   []program.Element // the kernel has the key with other data or another comment
	foreign []kernel.Found    // nobody wants the key
}

// compare finds the difference.
func (s *scope) compare(k kernel.NFTables) (d difference, err error) {
	switch {
	case s.rows != nil && len(s.rows) == 0:
		return difference{scope: s, missing: s.list}, nil
	case s.rows != nil:
		return s.compareRows(), nil
	case s.whole:
		d, err = s.compareAll(k)
	default:
		d, err = s.lookUp(k)
	}
	if err != nil {
		err = fmt.Errorf("read %s: %w", s.def.Name, err)
	}
	return d, err
}

// undo compares each scope and writes what makes the kernel have what it is to have.
func undo(w program.Writer, k kernel.NFTables, scopes ...scope) error {
	for i := range scopes {
		d, err := scopes[i].compare(k)
		if err != nil {
			return err
		}
		d.undo(w)
	}
	return nil
}

func (d *difference) empty() bool { return len(d.missing)+len(d.wrong)+len(d.foreign) == 0 }

// undo writes what makes the kernel have the wanted elements. A set of ranges is written as a whole: the ends of ranges
// are elements of their own, and the kernel refuses to delete one without the other.
func (d *difference) undo(w program.Writer) {
	add := [][]program.Element{d.missing, d.wrong}
	if d.def.Interval && d.rows == nil && !d.empty() {
		w.Do(program.Operation{Kind: program.FlushSet, Name: d.def.Name})
		add = [][]program.Element{d.list}
	} else {
		for i := range d.foreign {
			w.Remove(d.set, w.KeyOnly(d.foreign[i].Key, d.foreign[i].IntervalEnd))
		}
		for _, e := range d.wrong {
			w.Remove(d.set, w.KeyOnly(e.Key(d.want.Arena), e.IntervalEnd))
		}
	}
	for _, list := range add {
		for _, e := range list {
			w.Copy(d.set, e, d.want.Arena)
		}
	}
}

// keys are those of all elements that differ.
func (d *difference) keys() (keys [][]byte) {
	for _, e := range slices.Concat(d.missing, d.wrong) {
		keys = append(keys, e.Key(d.want.Arena))
	}
	for i := range d.foreign {
		keys = append(keys, d.foreign[i].Key)
	}
	return keys
}

// compareAll reads the set. While the kernel resizes the hash table of a large set, some time after a change, a dump
// leaves out elements and repeats others. To add an element that is there does no harm; a repeated one must not count as
// foreign.
func (s *scope) compareAll(k kernel.NFTables) (difference, error) {
	d, arena := difference{scope: s}, s.want.Arena
	wanted := make(map[string]program.Element, len(s.list))
	for _, e := range s.list {
		wanted[e.ID(arena)] = e
	}
	held, others := make(map[string]bool, len(s.list)), map[string]kernel.Found{}
	err := k.DumpElements(s.want.Family, s.def.Name, func(found kernel.Found) {
		id := program.ElementID(found.Key, found.IntervalEnd)
		if e, is := wanted[id]; is && found.Holds(e, arena, s.def) {
			held[id] = true
		} else {
			others[id] = found.Clone()
		}
	})
	for _, e := range s.list {
		id := e.ID(arena)
		_, is := others[id]
		delete(others, id)
		switch {
		case held[id]:
		case is:
			d.wrong = append(d.wrong, e)
		default:
			d.missing = append(d.missing, e)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(others)) { // equal differences make equal transactions
		d.foreign = append(d.foreign, others[id])
	}
	return d, err
}

// lookUp asks for the elements: many at once, and one by one if these are not all as they should be.
func (s *scope) lookUp(k kernel.NFTables) (difference, error) {
	d := difference{scope: s}
	for row := range slices.Chunk(s.list, kernel.RowLength) {
		if has, err := s.hasRow(k, row); has || err != nil {
			if err != nil {
				return d, err
			}
			continue
		}
		for _, e := range row {
			found, exists, err := k.Lookup(s.want.Family, s.def.Name, e.Key(s.want.Arena))
			switch {
			case err != nil:
				return d, err
			case !exists:
				d.missing = append(d.missing, e)
			case s.def.Ports && !kernel.SameValue(found.Key, e.Key(s.want.Arena)): // another range is in its way
				d.missing = append(d.missing, e)
				d.addForeign(found)
			case !found.Holds(e, s.want.Arena, s.def):
				d.wrong = append(d.wrong, e)
			}
		}
	}
	for _, key := range s.others {
		found, exists, err := k.Lookup(s.want.Family, s.def.Name, key)
		if err != nil {
			return d, err
		}
		if exists && kernel.SameValue(found.Key, key) {
			d.addForeign(found)
		}
	}
	return d, nil
}

// addForeign adds an element once. A range can be in the way of several others.
func (d *difference) addForeign(found kernel.Found) {
	if !slices.ContainsFunc(d.foreign, func(f kernel.Found) bool { return bytes.Equal(f.Key, found.Key) && f.IntervalEnd == found.IntervalEnd }) {
		d.foreign = append(d.foreign, found)
	}
}

// hasRow reports whether the kernel has some elements.
func (s *scope) hasRow(k kernel.NFTables, row []program.Element) (bool, error) {
	keys := make([][]byte, len(row))
	for i, e := range row {
		keys[i] = e.Key(s.want.Arena)
	}
	i, same := 0, true
	_, err := k.LookupRow(s.want.Family, s.def.Name, keys, func(found kernel.Found) {
		same = same && i < len(row) && found.Holds(row[i], s.want.Arena, s.def)
		i++
	})
	return same && i == len(row), err
}

// compareRows compares slots that were read before. There may be hundreds of thousands, so it makes no map of them.
func (s *scope) compareRows() difference {
	d := difference{scope: s}
	wanted := make(map[uint32][]bool, len(s.rows))
	for number, r := range s.rows {
		wanted[number] = make([]bool, r.Slots())
	}
	for _, e := range s.list {
		key := e.Key(s.want.Arena)
		number, slot := binary.NativeEndian.Uint32(key), binary.NativeEndian.Uint32(key[4:])
		is := s.rows[number].At(slot)
		if is == nil {
			d.missing = append(d.missing, e)
			continue
		}
		if wanted[number][slot] = true; !kernel.SameValue(is, e.Data(s.want.Arena)) {
			d.wrong = append(d.wrong, e)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(s.rows)) {
		r := s.rows[number]
		for slot := range uint32(r.Slots()) {
			if !wanted[number][slot] && r.At(slot) != nil {
				var key program.Builder
				key.Word(number)
				key.Word(slot)
				d.foreign = append(d.foreign, kernel.Found{Key: key.Arena})
			}
		}
	}
	return d
}
