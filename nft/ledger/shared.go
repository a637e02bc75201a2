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

const shards = 4096

type shard struct {
	set program.SetID
	n   uint64
}

// isShared reports whether owners share the elements of a set, and the shards count the owners of each.
func isShared(id program.SetID) bool { return id == program.ClusterIPs || id == program.Hairpin }

// shardOf is the account that has a key of a set.
func (l *Ledger) shardOf(set program.SetID, key []byte) *Account {
	at := shard{set, maphash.Bytes(l.seed, key) % shards}
	if l.shards[at] == nil {
		a := l.Open("")
		a.shard, l.shards[at], l.sharded[set] = set, a, true
	}
	return l.shards[at]
}

// Put adds an element that belongs to no single owner, or gives it other data.
func (l *Ledger) Put(set program.SetID, key, data []byte) {
	l.Set(l.shardOf(set, key), Record{Set: set, Key: key, Data: data}, false)
}

// Drop deletes such an element.
func (l *Ledger) Drop(set program.SetID, key []byte) {
	l.Set(l.shardOf(set, key), Record{Set: set, Key: key}, true)
}

// Has reports whether such an element is wanted.
func (l *Ledger) Has(set program.SetID, key []byte) bool {
	records, _ := l.shardOf(set, key).wanted.(Records)
	_, n := records.find(&Record{Set: set, Key: key})
	return n > 0
}

// share adds owners to a shared element, or takes them away.
func (l *Ledger) share(r *Record, by int) {
	a := l.shardOf(r.Set, r.Key)
	records, _ := a.wanted.(Records)
	at, n := records.find(&Record{Set: r.Set, Key: r.Key})
	owners := by
	if n > 0 {
		is, _, _ := records.At(at)
		if owners += int(binary.NativeEndian.Uint32(is.Data)); owners > 0 {
			binary.NativeEndian.PutUint32(is.Data, uint32(owners)) // in place: it makes no difference to the kernel
			return
		}
	}
	next := Record{Set: r.Set, Key: r.Key, Data: binary.NativeEndian.AppendUint32(nil, uint32(owners))}
	a.wanted = records.edit(next, owners == 0)
	l.counts[r.Set] += by
	l.await(a)
}
