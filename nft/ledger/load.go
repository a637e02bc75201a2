package ledger

import (
	"math"
	"slices"
)

// State is what the kernel has of an element.
type State uint8

const (
	Same    State = iota
	Missing       // the kernel does not have the key
	Other         // it has the key with other data or another comment
)

// fix is what somebody found.
type fix struct {
	Record
	State
}

// Assume notes that the kernel has what is wanted. Corrections follow.
func (l *Ledger) Assume() {
	l.settle(func(*Account) bool { return true })
	l.nobody.applied, l.fixes = nil, nil
}

// Forget notes that the kernel has nothing.
func (l *Ledger) Forget() {
	l.Assume()
	l.empty = true
	for _, a := range l.accounts {
		if a.wanted != nil {
			l.found(a, nil)
		}
	}
}

// Correct notes what the kernel has of an element that an account has applied, or wants. No account wants an element of nobody.
// Corrected takes the notes over.
func (l *Ledger) Correct(a *Account, r *Record, is State) {
	if a == nil {
		a = l.nobody
	}
	if l.fixes == nil {
		l.fixes = map[*Account][]fix{}
	}
	one := fix{Record{Set: r.Set, End: r.End, Key: slices.Clone(r.Key), Data: slices.Clone(r.Data)}, is}
	l.fixes[a] = append(l.fixes[a], one)
}

// Corrected takes over what was noted. What is pending then makes the kernel have what is wanted.
func (l *Ledger) Corrected() {
	if len(l.fixes) == 0 {
		return
	}
	for _, a := range l.accounts {
		if list := l.fixes[a]; len(list) > 0 {
			l.found(a, a.corrected(list))
		}
	}
	l.fixes = nil
}

// found replaces what an account has applied.
func (l *Ledger) found(a *Account, applied Content) {
	l.versions++
	a.applied, a.equal, a.version[1] = applied, ends{differ: true}, l.versions
	l.await(a)
}

// corrected is what an account has applied, corrected.
func (a *Account) corrected(list []fix) Content {
	slices.SortStableFunc(list, func(x, y fix) int { return x.compare(&y.Record) })
	list = slices.CompactFunc(list, func(x, y fix) bool { return x.compare(&y.Record) == 0 })
	var out Records
	put := func(f fix) {
		if f.State != Missing {
			f.other = f.State == Other
			out = out.Append(f.Record)
		}
	}
	each(a.applied, func(r *Record) {
		for len(list) > 0 && list[0].compare(r) < 0 {
			put(list[0])
			list = list[1:]
		}
		if len(list) > 0 && list[0].compare(r) == 0 {
			put(list[0])
			list = list[1:]
			return
		}
		out = out.Append(*r)
	})
	for _, f := range list {
		put(f)
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// Cursor visits the elements that the kernel is to have, a few at a time. The ledger may change in between.
type Cursor struct {
	l        *Ledger
	account  int // the accounts before this one are left
	place    int
	of       *Account // that the place is in
	version  uint32   // of what it has applied
	restarts int
}

// maxRestarts bounds how often an account is visited again because it changes. The transactions of its changes were right, and
// the kernel took them.
const maxRestarts = 3

// Cursor begins at the last account: another one takes the place of an account that goes, and that one was visited before.
func NewCursor(l *Ledger) *Cursor { return &Cursor{l: l, account: len(l.accounts)} }

// Left reports whether there may be more.
func (c *Cursor) Left() bool { return c.account > 0 }

// Next visits the next elements, at most so many, all of one account.
func (c *Cursor) Next(most int, visit func(*Account, *Record)) {
	if c.account = min(c.account, len(c.l.accounts)); c.account == 0 {
		return
	}
	a := c.l.accounts[c.account-1]
	if a.applied == nil {
		c.next()
		return
	}
	if c.place > 0 && (c.of != a || c.version != a.version[1]) {
		c.place = 0
		if c.restarts++; c.restarts > maxRestarts {
			c.next()
			return
		}
	}
	c.of, c.version = a, a.version[1]
	var r Record
	for range most {
		var ok bool
		if r, c.place, ok = a.applied.At(c.place); !ok {
			c.next()
			return
		}
		if a.shows(c.l, r.Set) {
			visit(a, &r)
		}
	}
}

// Part visits one of so many parts of all accounts, apart from those whose elements are not kept but made.
func (c *Cursor) Part(parts int, visit func(*Account, *Record)) {
	for range (len(c.l.accounts) + parts - 1) / parts {
		if c.account = min(c.account, len(c.l.accounts)); c.account == 0 {
			return
		}
		if _, kept := c.l.accounts[c.account-1].applied.(Records); kept {
			c.Next(math.MaxInt, visit)
		} else {
			c.next()
		}
	}
}

func (c *Cursor) next() { c.account, c.place, c.restarts = c.account-1, 0, 0 }
