package ledger

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/verdict-proxy/verdict/nft/program"
)

// Elements that belong to no single owner are in accounts of the ledger, the shards: a change costs the length of a shard, and
// not that of the set.
//
// Some elements are there as long as at least one owner wants them. Each of these owners has a record of the element, and the
// shard has one whose data is the number of those owners.

const parts = 4096

// shards are the accounts of these elements.
type shards struct {
	*Ledger
	accounts map[part]*Account
	seed     maphash.Seed           // nobody can write many elements of one shard
	sets     [program.SetCount]bool // that have shards
}

type part struct {
	set program.SetID
	n   uint64
}

func newShards(l *Ledger) shards {
	return shards{Ledger: l, accounts: map[part]*Account{}, seed: maphash.MakeSeed()}
}

// isShared reports whether owners share the elements of a set, and the shards count the owners of each.
func isShared(id program.SetID) bool {
	return id == program.ClusterIPs || id == program.ExternalIPs || id == program.Hairpin
}

// of is the account that has a key of a set.
func (s *shards) of(set program.SetID, key []byte) *Account {
	at := part{set, maphash.Bytes(s.seed, key) % parts}
	if s.accounts[at] == nil {
		a := s.Open("")
		a.shard, s.accounts[at], s.sets[set] = set, a, true
	}
	return s.accounts[at]
}

// share adds owners to a shared element, or takes them away. It returns by how many the elements change.
func (s *shards) share(r *Record, by int) int {
	a := s.of(r.Set, r.Key)
	records, _ := a.wanted.(Records)
	at, n := records.find(&Record{Set: r.Set, Key: r.Key})
	owners := by
	if n > 0 {
		is, _, _ := records.At(at)
		if owners += int(binary.NativeEndian.Uint32(is.Data)); owners > 0 {
			binary.NativeEndian.PutUint32(is.Data, uint32(owners)) // in place: it makes no difference to the kernel
			return 0
		}
	}
	next := records.edit(nil, Record{Set: r.Set, Key: r.Key, Data: binary.NativeEndian.AppendUint32(nil, uint32(owners))}, owners == 0)
	s.replace(a, next, endsOf(records, next))
	return by
}

// Put adds an element that belongs to no single owner, or gives it other data.
func (l *Ledger) Put(set program.SetID, key, data []byte) {
	l.Set(l.shards.of(set, key), Record{Set: set, Key: key, Data: data}, false)
}

// Drop deletes such an element.
func (l *Ledger) Drop(set program.SetID, key []byte) {
	l.Set(l.shards.of(set, key), Record{Set: set, Key: key}, true)
}

// Has reports whether such an element is wanted.
func (l *Ledger) Has(set program.SetID, key []byte) bool {
	records, _ := l.shards.of(set, key).wanted.(Records)
	_, n := records.find(&Record{Set: set, Key: key})
	return n > 0
}
