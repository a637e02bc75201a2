package table

import (
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents/mirror"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// Repair writes what undoes an interference. It reports whether the contents are lost, so that this would not suffice.
func (tb *Table) Repair(w program.Writer, k kernel.NFTables, i *kernel.Interference) (lost bool, err error) {
	was, err := k.Survey(tb.Family)
	if err == nil {
		lost, err = tb.lostContents(k, was)
	}
	if err != nil || lost {
		return lost, err
	}
	tb.Owner.note(was, tb.keeps(was))
	changed := !tb.Intact(was) || tb.isRetuned(was)
	if changed {
		tb.undoStructure(w, was)
	}
	return false, undo(w, k, tb.touchedScopes(i, changed)...)
}

// touchedScopes are what an interference touched. If chains changed, the map that leads to them is compared as a whole:
// its elements follow a chain that another process renames. The affinity map is left out: its entries are those of
// clients.
func (tb *Table) touchedScopes(i *kernel.Interference, chains bool) (list []scope) {
	var want program.Writer
	for id := range program.SetCount {
		at := i.Sets[kernel.TableSet{Family: tb.Family, Set: tb.Defs[id].Name}]
		whole := chains && id == program.Dispatch
		if tb.Defs[id].Dynamic || at == nil && !whole || !whole && at.Many && i.Unheard { // the recheck comes to large sets
			continue
		}
		if want.Transaction == nil {
			want = tb.wanted(i)
		}
		if whole || at.Many || tb.Defs[id].Interval {
			list = append(list, tb.scopeOf(id, want))
		} else {
			list = append(list, tb.touchedScope(id, at, want))
		}
	}
	return list
}

// wanted lists what the sets of the table are to have, as far as an interference touched them.
func (tb *Table) wanted(i *kernel.Interference) program.Writer {
	keys := mirror.KeysOf{}
	for id := range program.SetCount {
		at := i.Sets[kernel.TableSet{Family: tb.Family, Set: tb.Defs[id].Name}]
		if at == nil {
			continue
		}
		if at.Many && !i.Unheard {
			return tb.Everything()
		}
		keys[id] = at.Bytes()
	}
	return tb.owned(keys)
}

// The kernel tells the engine of each commit of another process. The periodic check is the net below that: each Check
// compares how many elements every set has, and looks up the elements of some service ports, one after the other. It
// finds what no message told of.

// Check compares a table. If the engine is not settled, what the elements are to be is not in the kernel yet.
func (tb *Table) Check(i *kernel.Interference, k kernel.NFTables, settled bool) error {
	was, err := k.Survey(tb.Family)
	if err != nil {
		return err
	}
	lost, err := tb.lostContents(k, was)
	i.Replaced = i.Replaced || lost
	i.Structure = i.Structure || lost || !tb.Intact(was) || tb.Owner.lost(was)
	if err != nil || lost || !settled {
		return err
	}
	for _, id := range tb.miscounted(was, false) {
		i.At(kernel.TableSet{Family: tb.Family, Set: tb.Defs[id].Name}).Many = true
	}
	want := program.NewWriter(tb.Family)
	tb.Want.Ports.List(want, tb.round.next(&tb.Want.Ports))
	for _, p := range mirror.PartsOf(want, kernel.RowLength) {
		s := tb.scopeOfPart(p)
		d, err := s.compare(k)
		if err != nil {
			return err
		}
		for _, key := range d.keys() {
			i.At(kernel.TableSet{Family: tb.Family, Set: s.def.Name}).Touch(key)
		}
	}
	return nil
}

// Mend writes the fixed chains of a table that are not as they should be, and deletes chains of others that have a
// hook. A table that sleeps is woken afterwards.
func (tb *Table) Mend(w program.Writer, k kernel.NFTables) (changed []string, err error) {
	was, err := k.Survey(tb.Family)
	if err != nil || !tb.keeps(was) {
		return nil, err
	}
	p, known, err := tb.formerProgram(k, was)
	if err != nil || !known {
		return nil, err
	}
	fixed := map[string]program.Chain{}
	for _, c := range p.Chains() {
		fixed[c.Name] = c
	}
	d := tb.compareChains(was, p, fixed)
	d.foreign = slices.DeleteFunc(d.foreign, func(name string) bool { return was.Chains[name] == (program.ChainShape{}) })
	for _, c := range d.wrong {
		changed = append(changed, c.Name)
	}
	changed = append(changed, d.foreign...)
	d.clear(w, was)
	w.AddChains(d.wrong)
	if tb.Owner.Reflag, tb.Owner.Next = was.Asleep(), was.Flags&^unix.NFT_TABLE_F_DORMANT; tb.Owner.Reflag {
		changed = append(changed, "(put to sleep)")
	}
	return changed, nil
}
