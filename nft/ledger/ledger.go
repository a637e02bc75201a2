package ledger

import (
	"hash/maphash"
	"slices"

	"github.com/verdict-proxy/verdict/nft/program"
)

// Ledger has the accounts of one table.
//
//	Want, Put, Drop            wanted
//	                             |     what differs is pending -> Write -> a transaction
//	Assume, Forget, Correct    applied                                        |
//	                             ^------------------ Settle <---- the kernel has it
//
// Each element has one owner, which has an account. After a transaction that the kernel refused, or whose outcome nobody knows,
// what is pending stays pending. Somebody who knows what the kernel has corrects what is applied, and what is pending then is the
// answer: at a start, after the edit of another process, at the periodic check.
type Ledger struct {
	family   program.Family
	defs     [program.SetCount]program.Set
	comment  func(owner string, r *Record) string
	accounts []*Account
	pending  []*Account
	shards   map[shard]*Account
	seed     maphash.Seed           // of the shards: nobody can write many elements of one of them
	sharded  [program.SetCount]bool // sets with shards
	nobody   *Account               // has what nobody wants
	ranges   *Account               // has all elements of sets of ranges
	counts   [program.SetCount]int
	fixes    map[*Account][]fix
	empty    bool // the kernel has nothing
}

// Account is what one owner wants and what the kernel has of that. Its fields belong to the ledger.
type Account struct {
	owner   string
	named   string // the owner in the comments that the kernel has
	wanted  Content
	applied Content
	shard   program.SetID // the set whose elements the ledger has here; 0: it is the account of an owner
	place   int           // in Ledger.accounts
	pending bool          // it is in Ledger.pending
	closed  bool          // it goes when the kernel has nothing of it
	changes int
}

// Owner is the name of the owner; "": an account of the ledger.
func (a *Account) Owner() string { return a.owner }

// Changes is how many elements of the account the latest transaction adds and deletes.
func (a *Account) Changes() int { return a.changes }

// Wanted is what the owner wants.
func (a *Account) Wanted() Content { return a.wanted }

// New returns a ledger. comment returns the comment of an element.
func New(f program.Family, comment func(owner string, r *Record) string) *Ledger {
	l := &Ledger{family: f, defs: program.Program{Family: f}.Sets(), comment: comment, shards: map[shard]*Account{}, seed: maphash.MakeSeed()}
	l.nobody = l.Open("")
	return l
}

// OpenRanges opens the account that has all elements of the sets of ranges.
func (l *Ledger) OpenRanges() *Account {
	l.ranges = l.Open("")
	return l.ranges
}

// Open opens the account of an owner.
func (l *Ledger) Open(owner string) *Account {
	a := &Account{owner: owner, named: owner, place: len(l.accounts)}
	l.accounts = append(l.accounts, a)
	return a
}

// Rename gives an owner another name. The comments of its elements change with that.
func (l *Ledger) Rename(a *Account, owner string) {
	a.owner = owner
	l.await(a)
}

// Close ends an account: its owner wants nothing any more.
func (l *Ledger) Close(a *Account) {
	l.Want(a, nil)
	a.closed = true
	l.await(a)
}

// Want replaces what an owner wants. A list that is equal to the one before keeps that one's memory.
func (l *Ledger) Want(a *Account, next Content) {
	if r, is := next.(Records); is && len(r) == 0 {
		next = nil
	}
	changed := false
	diff(a.wanted, next, func(old, next *Record) {
		changed = true
		if old != nil {
			l.count(old, -1)
		}
		if next != nil {
			l.count(next, 1)
		}
	})
	if changed {
		a.wanted = next
		l.await(a)
	}
}

// Set gives one key of an account other data, or drops the key.
func (l *Ledger) Set(a *Account, r Record, drop bool) {
	records, _ := a.wanted.(Records)
	l.Want(a, records.edit(r, drop))
}

// count counts an element that comes or goes.
func (l *Ledger) count(r *Record, by int) {
	if isShared(r.Set) {
		l.share(r, by)
		return
	}
	l.counts[r.Set] += by
}

func (l *Ledger) await(a *Account) {
	if !a.pending {
		a.pending = true
		l.pending = append(l.pending, a)
	}
}

// Count is how many elements a set is to have.
func (l *Ledger) Count(id program.SetID) int { return l.counts[id] }

// Pending reports whether the kernel lacks a change.
func (l *Ledger) Pending() bool { return len(l.pending) > 0 }

// Accounts calls each for the accounts whose elements the transaction changes.
func (l *Ledger) Accounts(each func(*Account)) {
	for _, a := range l.pending {
		each(a)
	}
}

// Write writes what is pending to a transaction.
func (l *Ledger) Write(w program.Writer) {
	if l.empty {
		l.reserve(w)
	}
	intervals := map[program.SetID]bool{}
	for _, a := range l.pending {
		l.write(w, a, intervals)
	}
	for id := range program.SetCount {
		if intervals[id] {
			l.rewrite(w, id)
		}
		if l.sharded[id] {
			w.Sort(id) // so that equal changes make equal transactions
		}
	}
}

// reserve makes room for all elements, so that no list grows in steps.
func (l *Ledger) reserve(w program.Writer) {
	const perElement = 24 // bytes of the key and data of most
	all := 0
	for id, n := range l.counts {
		all += n
		c := &w.Changes[w.Family.Index()][id]
		c.Add = slices.Grow(c.Add, n)
	}
	w.Arena = slices.Grow(w.Arena, perElement*all)
}

// WriteSet writes what is pending in the elements of one set that belong to no single owner.
func (l *Ledger) WriteSet(w program.Writer, id program.SetID) {
	for _, a := range l.pending {
		if a.shard == id {
			l.write(w, a, nil)
		}
	}
}

// write writes what is pending in an account. It notes the sets of ranges that differ.
func (l *Ledger) write(w program.Writer, a *Account, intervals map[program.SetID]bool) {
	a.changes = 0
	if a.named != a.owner {
		l.relabel(w, a)
		return
	}
	diff(a.applied, a.wanted, func(old, next *Record) {
		r := old
		if r == nil {
			r = next
		}
		switch {
		case isShared(r.Set) && a.shard == 0 && a != l.nobody:
			return // the element is in a shard
		case l.defs[r.Set].Interval:
			intervals[r.Set] = true
			return
		}
		if old != nil {
			l.remove(w, a, old)
		}
		if next != nil {
			l.insert(w, a, next)
		}
	})
}

// remove deletes an element. The text of the transaction says whose it was; the kernel gets only the key.
func (l *Ledger) remove(w program.Writer, a *Account, r *Record) {
	a.changes++
	if r.other || l.comment(a.named, r) == "" {
		w.Remove(r.Set, w.KeyOnly(r.Key, r.End))
	} else {
		w.Remove(r.Set, l.Element(w, a.named, r))
	}
}

func (l *Ledger) insert(w program.Writer, a *Account, r *Record) {
	a.changes++
	w.Insert(r.Set, l.Element(w, a.owner, r))
}

// rewrite writes a set of ranges as a whole: the ends of ranges are elements of their own, and the kernel refuses to delete one
// without the other.
func (l *Ledger) rewrite(w program.Writer, id program.SetID) {
	empty := true
	for _, a := range []*Account{l.ranges, l.nobody} {
		each(a.applied, func(r *Record) { empty = empty && r.Set != id })
	}
	if !empty {
		w.Do(program.Operation{Kind: program.FlushSet, Name: id.Name()})
	}
	each(l.ranges.wanted, func(r *Record) {
		if r.Set == id {
			l.insert(w, l.ranges, r)
		}
	})
}

// relabel writes an account whose owner has another name: each element with a comment is deleted and added.
func (l *Ledger) relabel(w program.Writer, a *Account) {
	walk(a.applied, a.wanted, func(old, next *Record) {
		if old != nil && next != nil && old.same(next) && l.comment(a.owner, old) == l.comment(a.named, old) {
			return
		}
		if old != nil && !isShared(old.Set) {
			l.remove(w, a, old)
		}
		if next != nil && !isShared(next.Set) {
			l.insert(w, a, next)
		}
	})
}

// Element is a record with its comment.
func (l *Ledger) Element(w program.Writer, owner string, r *Record) program.Element {
	e := program.Element{Offset: w.Mark(), KeyLen: uint8(len(r.Key)), IntervalEnd: r.End, Label: l.comment(owner, r)}
	w.Arena = append(w.Arena, r.Key...)
	if r.Set != program.Dispatch && !isShared(r.Set) {
		w.Arena = append(w.Arena, r.Data...)
		e.DataLen = uint8(len(r.Data))
	}
	return e
}

// Settle notes that the kernel has everything that was pending.
func (l *Ledger) Settle() { l.settle(func(*Account) bool { return true }) }

// SettleSet notes that the kernel has what was pending in the elements of one set that belong to no single owner.
func (l *Ledger) SettleSet(id program.SetID) {
	l.settle(func(a *Account) bool { return a.shard == id })
}

func (l *Ledger) settle(of func(*Account) bool) {
	rest := l.pending[:0]
	for _, a := range l.pending {
		if !of(a) {
			rest = append(rest, a)
			continue
		}
		a.applied, a.named, a.pending = a.wanted, a.owner, false
		if a.closed {
			l.forget(a)
		}
	}
	clear(l.pending[len(rest):])
	if l.pending = rest; len(rest) == 0 {
		l.pending, l.empty = nil, false // the list of the first transaction is long
	}
}

// forget takes an account off the list. Another one takes its place.
func (l *Ledger) forget(a *Account) {
	last := l.accounts[len(l.accounts)-1]
	l.accounts[a.place], last.place = last, a.place
	l.accounts[len(l.accounts)-1] = nil
	l.accounts = l.accounts[:len(l.accounts)-1]
	delete(l.fixes, a)
}

// Each visits all elements that are wanted.
func (l *Ledger) Each(visit func(a *Account, r *Record)) {
	l.each(func(a *Account) Content { return a.wanted }, visit)
}

// EachApplied visits all elements that the kernel has, as far as the ledger knows.
func (l *Ledger) EachApplied(visit func(a *Account, r *Record)) {
	l.each(func(a *Account) Content { return a.applied }, visit)
}

func (l *Ledger) each(of func(*Account) Content, visit func(*Account, *Record)) {
	for _, a := range l.accounts {
		each(of(a), func(r *Record) {
			if !isShared(r.Set) || a.shard != 0 || a == l.nobody {
				visit(a, r)
			}
		})
	}
}

// Comment is the comment that an element of an account has in the kernel.
func (l *Ledger) Comment(a *Account, r *Record) string { return l.comment(a.named, r) }

func each(c Content, visit func(*Record)) {
	var r Record // one for all: visit keeps none
	for place := 0; ; {
		var next int
		var ok bool
		if r, next, ok = at(c, place); !ok {
			return
		}
		visit(&r)
		place = next
	}
}
