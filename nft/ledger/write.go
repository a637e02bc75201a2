package ledger

import (
	"slices"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// writer writes what is pending to a transaction.
type writer struct {
	program.Writer
	*Ledger
	ranges [program.SetCount]bool // sets of ranges that differ
}

// Write writes what is pending to a transaction.
func (l *Ledger) Write(to program.Writer) {
	w := writer{Writer: to, Ledger: l}
	if l.empty {
		w.reserve()
	}
	l.changes = slices.Grow(l.changes[:0], len(l.pending))
	for _, a := range l.pending {
		l.changes = append(l.changes, serviceport.Counts{})
		w.account(a)
	}
	for id := range program.SetCount {
		if w.ranges[id] {
			w.rewrite(id)
		}
		if l.shards.sets[id] {
			w.Sort(id) // so that equal changes make equal transactions
		}
	}
}

// WriteSet writes what is pending in the elements of one set that belong to no single owner.
func (l *Ledger) WriteSet(to program.Writer, id program.SetID) {
	w := writer{Writer: to, Ledger: l}
	l.changes = append(l.changes[:0], serviceport.Counts{}) // nobody asks for them
	for _, a := range l.pending {
		if a.shard == id {
			w.account(a)
		}
	}
}

// reserve makes room for all elements, so that no list grows in steps.
func (w *writer) reserve() {
	const perElement = 24 // bytes of the key and data of most
	all := 0
	for id, n := range w.counts {
		all += n
		c := &w.Changes[w.Family.Index()][id]
		c.Add = slices.Grow(c.Add, n)
	}
	w.Arena = slices.Grow(w.Arena, perElement*all)
}

// account writes what is pending in an account. If its owner has another name, each element with a comment is deleted and added.
func (w *writer) account(a *Account) {
	if a.named != a.owner {
		w.records.walk(a.applied, a.wanted, func(old, next *Record) {
			if old == nil || next == nil || !old.same(next) || w.comment(a.owner, old) != w.comment(a.named, old) {
				w.change(a, old, next)
			}
		})
		return
	}
	w.records.diff(a.equal.without(a.applied), a.equal.without(a.wanted), func(old, next *Record) { w.change(a, old, next) })
}

// change writes the change of an element. The text of the transaction says whose it was; the kernel gets only the key.
func (w *writer) change(a *Account, old, next *Record) {
	set := next
	if next == nil {
		set = old
	}
	switch {
	case !a.shows(w.Ledger, set.Set):
		return // the element is in a shard
	case w.defs[set.Set].Interval:
		w.ranges[set.Set] = true
		return
	}
	changes := &w.changes[len(w.changes)-1]
	if old != nil {
		if changes[set.Set.Kind()]++; old.other || w.comment(a.named, old) == "" {
			w.Remove(old.Set, w.KeyOnly(old.Key, old.End))
		} else {
			w.Remove(old.Set, Element(w.Writer, w.comment(a.named, old), old))
		}
	}
	if next != nil {
		changes[set.Set.Kind()]++
		w.insert(a, next)
	}
}

func (w *writer) insert(a *Account, r *Record) {
	w.Insert(r.Set, Element(w.Writer, w.comment(a.owner, r), r))
}

// rewrite writes a set of ranges as a whole: the ends of ranges are elements of their own, and the kernel refuses to delete one
// without the other.
func (w *writer) rewrite(id program.SetID) {
	empty := true
	for _, a := range []*Account{w.Ranges, w.nobody} {
		each(a.applied, func(r *Record) { empty = empty && r.Set != id })
	}
	if !empty {
		w.Do(program.Operation{Kind: program.FlushSet, Name: id.Name()})
	}
	each(w.Ranges.wanted, func(r *Record) {
		if r.Set == id {
			w.insert(w.Ranges, r)
		}
	})
}

// Element is a record with its comment.
func Element(w program.Writer, comment string, r *Record) program.Element {
	e := program.Element{Offset: w.Mark(), KeyLen: uint8(len(r.Key)), IntervalEnd: r.End, Label: comment}
	w.Arena = append(w.Arena, r.Key...)
	if r.Set != program.Dispatch && !isShared(r.Set) {
		w.Arena = append(w.Arena, r.Data...)
		e.DataLen = uint8(len(r.Data))
	}
	return e
}
