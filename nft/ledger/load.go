package ledger

import (
	"math"
	"slices"

	"github.com/verdict-proxy/verdict/nft/program"
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
			a.applied = nil
			l.await(a)
		}
	}
}

// Correct notes what the kernel has of an element that an account has applied, or wants. Corrected takes the notes over.
func (l *Ledger) Correct(a *Account, r *Record, is State) {
	if l.fixes == nil {
		l.fixes = map[*Account][]fix{}
	}
	one := fix{Record{Set: r.Set, End: r.End, Key: slices.Clone(r.Key), Data: slices.Clone(r.Data)}, is}
	l.fixes[a] = append(l.fixes[a], one)
}

// Foreign notes an element that nobody wants.
func (l *Ledger) Foreign(set program.SetID, key []byte, end bool) {
	l.Correct(l.nobody, &Record{Set: set, End: end, Key: key}, Other)
}

// Corrected takes over what was noted. What is pending then makes the kernel have what is wanted.
func (l *Ledger) Corrected() {
	if len(l.fixes) == 0 {
		return
	}
	for _, a := range l.accounts {
		if list := l.fixes[a]; len(list) > 0 {
			a.correct(list)
			l.await(a)
		}
	}
	l.fixes = nil
}

func (a *Account) correct(list []fix) {
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
	if a.applied = out; len(out) == 0 {
		a.applied = nil
	}
}

// Cursor visits the elements that the kernel is to have, a few at a time. The ledger may change in between.
type Cursor struct {
	l        *Ledger
	account  int // the accounts before this one are left
	place    int
	of       Content // that the place is in
	restarts int
}

// maxRestarts bounds how often an account is visited again because it changes. The transactions of its changes were right, and
// the kernel took them.
const maxRestarts = 3

// Cursor begins at the last account: another one takes the place of an account that goes, and that one was visited before.
func (l *Ledger) Cursor() *Cursor { return &Cursor{l: l, account: len(l.accounts)} }

// Left reports whether there may be more.
func (c *Cursor) Left() bool { return c.account > 0 }

// Next visits the next elements, at most so many, all of one account.
func (c *Cursor) Next(most int, visit func(*Account, *Record)) {
	if c.account = min(c.account, len(c.l.accounts)); c.account == 0 {
		return
	}
	a := c.l.accounts[c.account-1]
	if c.place > 0 && !identical(c.of, a.applied) {
		c.place = 0
		if c.restarts++; c.restarts > maxRestarts {
			c.next()
			return
		}
	}
	c.of = a.applied
	var r Record
	for range most {
		var ok bool
		if r, c.place, ok = at(a.applied, c.place); !ok {
			c.next()
			return
		}
		if !isShared(r.Set) || a.shard != 0 {
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

func (c *Cursor) next() { c.account, c.place, c.of, c.restarts = c.account-1, 0, nil, 0 }

// identical reports whether two lists are the same one in memory. Places in one are places in the other.
func identical(a, b Content) bool {
	x, isX := a.(Records)
	y, isY := b.(Records)
	if isX && isY {
		return len(x) == len(y) && (len(x) == 0 || &x[0] == &y[0])
	}
	return isX == isY && a == b
}
