package table

import (
	"encoding/binary"
	"maps"
	"slices"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Build writes the whole table. If the kernel has a table of the same layout, the same transaction
// replaces everything in it except affinity entries.
func (tb *Table) Build(w program.Writer, found kernel.Existing) {
	keep := tb.keeps(found)
	if found.Table && !keep {
		w.Do(program.Operation{Kind: program.DeleteTable})
	}
	if tb.Owner.note(found, keep); !keep {
		w.Do(program.Operation{Kind: program.AddTable, Flags: tb.Owner.flags()})
	}
	if keep {
		tb.tearDown(w, found)
	} else {
		found.Flowtables = nil
	}
	tb.addSets(w, keep, found)
	if replaceFlowtable(w, found, tb.Want.Program()) {
		tb.Want.OfferBy(nil)
	}
	tb.Want.Chains.Rewrite(w, tb.Want.Program())
	tb.Want.Forget()
	tb.Want.Write(w)
}

// tearDown empties the sets and chains that stay, and deletes the others. It replaces no set or chain that can stay.
// The gap would last nanoseconds, but a client that connects in a loop would see it: while a packet is in a chain, the
// kernel may switch to the next generation, in which a replaced set has no elements and a replaced base chain has no
// rules. In a set that stays, each lookup finds the old element or the new one.
func (tb *Table) tearDown(w program.Writer, found kernel.Existing) {
	w.Do(program.Operation{Kind: program.FlushRules})
	tb.dropSets(w, found, func(d *program.Set) bool { return !d.Dynamic })
	chains := tb.Want.Chains.All(tb.Want.Program())
	for _, name := range slices.Sorted(maps.Keys(found.Chains)) {
		if c, ok := chains[name]; !ok || c.Shape() != found.Chains[name] {
			w.Do(program.Operation{Kind: program.DeleteChain, Name: name})
		}
	}
}

// undoStructure writes the chains that are not as they should be, and the sets that cannot stay.
func (tb *Table) undoStructure(w program.Writer, found kernel.Existing) {
	d := tb.compareChains(found, tb.Want.Program(), tb.Want.Chains.All(tb.Want.Program()))
	d.clear(w, found)
	tb.dropSets(w, found, func(*program.Set) bool { return false })
	tb.addSets(w, true, found)
	if replaceFlowtable(w, found, tb.Want.Program()) {
		tb.Want.OfferBy(nil)
	}
	w.AddChains(d.wrong)
}

// An engine that starts, or that does not know what the kernel has, reads what is there, and writes what differs. So
// elements that stay keep their counters, and the transaction is small. If the kernel refuses it, because something
// else changed the table after it was read, the next transaction writes everything.

// Differs reports whether the table can be changed by a difference: it is there, and it has one stamp. The stamp leaves
// with the transaction, so the kernel refuses it if another engine has written the table after it was read.
func (tb *Table) Differs(was kernel.Existing, k kernel.NFTables) (bool, error) {
	if !tb.keeps(was) || !tb.canBeRead(was) {
		return false, nil
	}
	fresh, err := tb.image.current()
	if err == nil && !fresh {
		tb.image, err = tb.readImage(k)
	}
	if err != nil || tb.image == nil || len(tb.image.stamps) != 1 {
		return false, err
	}
	key := tb.image.stamps[0].Key
	if len(key) != 8 {
		return false, nil
	}
	tb.stamps.now = stamp{instance: binary.NativeEndian.Uint32(key), generation: binary.NativeEndian.Uint32(key[4:])}
	return true, nil
}

// Converge writes what makes the kernel's table as it is to be.
func (tb *Table) Converge(w program.Writer, found kernel.Existing, k kernel.NFTables) error {
	tb.Owner.note(found, tb.keeps(found))
	tb.undoStructure(w, found)
	if err := tb.LoadAll(found, k); err != nil {
		return err
	}
	tb.Want.Write(w)
	return nil
}
