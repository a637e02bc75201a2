package ledger

import (
	"slices"

	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
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
	changes  []serviceport.Counts // of these
	shards   shards
	nobody   *Account // has what nobody wants
	Ranges   *Account // has all elements of sets of ranges
	counts   [program.SetCount]int
	fixes    map[*Account][]fix
	empty    bool // the kernel has nothing
	versions uint32
	records  pair
	Changed  func(*Record) // called for each element that an owner begins to want or wants no more; nil: nobody asks
	scratch  Records       // of Set
	spare    Records       // the memory of a long list that nobody needs any more
}

// Account is what one owner wants and what the kernel has of that. Its fields belong to the ledger.
type Account struct {
	owner   string
	named   string // the owner in the comments that the kernel has
	wanted  Content
	applied Content
	equal   ends          // of these two
	version [2]uint32     // of these two
	place   int32         // in Ledger.accounts
	shard   program.SetID // the set whose elements the ledger has here; 0: it is the account of an owner
	pending bool          // it is in Ledger.pending
	closed  bool          // it goes when the kernel has nothing of it
}

// Owner is the name of the owner; "": an account of the ledger.
func (a *Account) Owner() string { return a.owner }

// Wanted is what the owner wants.
func (a *Account) Wanted() Content { return a.wanted }

// Applied is what the kernel has of that, as far as the ledger knows.
func (a *Account) Applied() Content { return a.applied }

// shows reports whether an element stands here for the kernel. Owners share some elements, which are in a shard as well.
func (a *Account) shows(l *Ledger, id program.SetID) bool {
	return !isShared(id) || a.shard != 0 || a == l.nobody
}

// New returns a ledger. comment returns the comment of an element.
func New(f program.Family, comment func(owner string, r *Record) string) *Ledger {
	l := &Ledger{family: f, defs: program.Program{Family: f}.Sets(), comment: comment}
	l.shards = newShards(l)
	l.nobody, l.Ranges = l.Open(""), l.Open("")
	return l
}

// Open opens the account of an owner.
func (l *Ledger) Open(owner string) *Account {
	a := &Account{owner: owner, named: owner, place: int32(len(l.accounts))}
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

// Want replaces what an owner wants. It copies a list that is another one than before.
func (l *Ledger) Want(a *Account, next Content) {
	records, isList := next.(Records)
	if isList && len(records) == 0 {
		next = nil
	}
	equal, changed := endsOf(a.wanted, next), false
	count := func(r *Record, by int) {
		if changed = true; isShared(r.Set) {
			by = l.shards.share(r, by)
		}
		l.counts[r.Set] += by
		if a.owner != "" && l.Changed != nil {
			l.Changed(r)
		}
	}
	l.records.diff(equal.without(a.wanted), equal.without(next), func(old, next *Record) {
		if old != nil {
			count(old, -1)
		}
		if next != nil {
			count(next, 1)
		}
	})
	if !changed {
		return
	}
	if isList && next != nil {
		if n := len(records); cap(l.spare) >= n && cap(l.spare) <= n+n/8 {
			copied := l.spare[:n]
			copy(copied, records)
			next, l.spare = copied, nil
		} else {
			next = slices.Clone(records)
		}
	}
	l.replace(a, next, equal)
}

// replace replaces what an account wants by a list of which equal is as before.
func (l *Ledger) replace(a *Account, next Content, equal ends) {
	l.versions++
	a.wanted, a.equal, a.version[0] = next, a.equal.least(equal), l.versions
	l.await(a)
}

// Set gives one key of an account other data, or drops the key.
func (l *Ledger) Set(a *Account, r Record, drop bool) {
	records, _ := a.wanted.(Records)
	l.scratch = records.edit(l.scratch[:0], r, drop)
	l.Want(a, l.scratch)
}

func (l *Ledger) await(a *Account) {
	if !a.pending {
		a.pending = true
		l.pending = append(l.pending, a)
	}
}

// Count is how many elements a set is to have.
func (l *Ledger) Count(id program.SetID) int { return l.counts[id] }

// Pending are the accounts of which the kernel lacks changes. It is valid until one of them changes.
func (l *Ledger) Pending() []*Account { return l.pending }

// PendingCounts are how many elements of each of them the latest transaction adds and deletes.
func (l *Ledger) PendingCounts() []serviceport.Counts { return l.changes }

// Settle notes that the kernel has everything that was pending.
func (l *Ledger) Settle() { l.settle(func(*Account) bool { return true }) }

// SettleSet notes that the kernel has what was pending in the elements of one set that belong to no single owner.
func (l *Ledger) SettleSet(id program.SetID) {
	l.settle(func(a *Account) bool { return a.shard == id })
}

func (l *Ledger) settle(of func(*Account) bool) {
	const long = 4096
	rest := l.pending[:0]
	for _, a := range l.pending {
		if !of(a) {
			rest = append(rest, a)
			continue
		}
		if old, _ := a.applied.(Records); cap(old) >= long && a.equal.differ {
			l.spare = old
		}
		a.applied, a.version[1], a.named, a.equal, a.pending = a.wanted, a.version[0], a.owner, ends{}, false
		if a.closed { // another one takes its place in the list
			last := l.accounts[len(l.accounts)-1]
			l.accounts[a.place], last.place = last, a.place
			l.accounts[len(l.accounts)-1] = nil
			l.accounts = l.accounts[:len(l.accounts)-1]
			delete(l.fixes, a)
		}
	}
	clear(l.pending[len(rest):])
	if l.pending = rest; len(rest) == 0 {
		l.pending, l.empty = nil, false // the list of the first transaction is long
		if cap(l.changes) > long {
			l.changes = nil
		}
	}
}

// Each visits all elements that are wanted, or all that are applied: of is the method of an account.
func (l *Ledger) Each(of func(*Account) Content, visit func(*Account, *Record)) {
	for _, a := range l.accounts {
		each(of(a), func(r *Record) {
			if a.shows(l, r.Set) {
				visit(a, r)
			}
		})
	}
}

// Comment is the comment that an element of an account has in the kernel.
func (l *Ledger) Comment(a *Account, r *Record) string { return l.comment(a.named, r) }

func each(c Content, visit func(*Record)) {
	if c == nil {
		return
	}
	r, next, ok := c.At(0) // one for all: visit keeps none
	for ; ok; r, next, ok = c.At(next) {
		visit(&r)
	}
}
