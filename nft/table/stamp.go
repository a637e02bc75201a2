package table

import (
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// stamp says which engine wrote a table last, and how often it did. The set "generation" holds it as its only element.
// Each transaction deletes the stamp that the engine wrote before and adds the next one, so the kernel refuses the
// transaction if anyone has replaced the contents of the table: another process, or "nft -f" with a saved ruleset. Then
// the engine's numbers of pools may belong to other service ports, and an update would reach the wrong ones.
type stamp struct{ instance, generation uint32 }

// NewInstance is the number of an engine. It has no meaning apart from being different.
func NewInstance() uint32 { return rand.Uint32() | 1 }

func (s stamp) element(t *program.Transaction, label string) program.Element {
	return t.Element(label, func(b *program.Builder) { b.Word(s.instance); b.Word(s.generation) }, nil)
}

// stamps are those of one table.
type stamps struct {
	now    stamp // in the kernel, as of the latest transaction
	coming stamp // in the transaction that is being sent
}

// write writes the next stamp of a table that the transaction changes. Where it writes the whole table, it has emptied the
// set already.
func (s *stamps) write(w program.Writer, instance uint32, label string, whole bool) {
	s.coming = stamp{instance: instance, generation: s.now.generation + 1}
	if !whole {
		w.Remove(program.Generation, s.now.element(w.Transaction, ""))
	}
	w.Insert(program.Generation, s.coming.element(w.Transaction, label))
}

// in reports whether the kernel's table has the stamp.
func (s stamp) in(f program.Family, k kernel.NFTables) (bool, error) {
	_, found, err := k.Lookup(f, program.Generation, s.key())
	return found, err
}

func (s stamp) key() []byte {
	t := &program.Transaction{}
	return s.element(t, "").Key(t.Arena)
}

// key is the key of the stamp in the kernel, if the set has the stamps.
func (s *stamps) key(id program.SetID) string {
	if id != program.Generation {
		return ""
	}
	return string(s.now.key())
}

// ownership is who may change a table, and which flags it gets with that.
type ownership struct {
	Wanted bool   // the kernel is to let no other process change the table
	Reflag bool   // after the next transaction the table gets other flags
	Next   uint32 // these
}

// flags are those that a new table gets.
func (o *ownership) flags() uint32 {
	if o.Wanted {
		return program.OwnerFlag | program.PersistFlag
	}
	return 0
}

// possible reports whether the engine can become the owner of a table that exists. The kernel does not let anyone change
// whether a table persists.
func (o *ownership) possible(found kernel.Existing) bool {
	return o.Wanted && found.Flags&program.PersistFlag != 0
}

// lost reports whether a table that is to have an owner has none, because the socket that owned it was closed.
func (o *ownership) lost(found kernel.Existing) bool {
	return o.possible(found) && found.Flags&program.OwnerFlag == 0
}

// needsNewTable reports whether a table has to be deleted and made again to get an owner. If clients have affinity,
// the table stays without an owner: the affinity entries of clients are worth more.
func (o *ownership) needsNewTable(found kernel.Existing, affinity bool) bool {
	return o.Wanted && !o.possible(found) && !affinity
}

// note notes the flags that a table is to get after the next transaction. A table that is made again gets its own at
// once.
func (o *ownership) note(found kernel.Existing, keep bool) {
	o.Reflag, o.Next = false, found.Flags&^unix.NFT_TABLE_F_DORMANT
	if !keep {
		return
	}
	if o.possible(found) {
		o.Next |= program.OwnerFlag
	}
	o.Reflag = o.Next != found.Flags
}
