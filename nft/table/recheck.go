package table

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents/mirror"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// When the kernel dropped events, anything may have changed. To compare everything takes seconds in large tables, and no
// change of a Service must wait for that. So the engine compares a part at a time. Repair begins, and an empty
// interference has it continue. The caller does that until nothing is left, with pauses and passes in between.
//
// First come the elements that are to be there, by look-ups. Then come those that nobody wants: the kernel counts the
// elements of its sets (Linux 6.16 and newer), and the engine lists those sets whose number is not as it should be, or
// not known. It takes quadratic time to list a large set, but the kernel hands it out in parts.

// FirstPart is how long Repair compares at first. Tables with a hundred Services are done then. Each further part takes
// nextPart.
const (
	FirstPart = 20 * time.Millisecond
	NextPart  = 5 * time.Millisecond
)

// Recheck compares everything with the kernel, in parts.
type Recheck struct {
	tables []*tableRecheck // what is left; empty: nothing
	Again  bool            // the kernel dropped events since it began
}

func (c *Recheck) UnderWay() bool { return len(c.tables) > 0 }

// Begin begins to compare everything. A recheck that is under way comes to its end first. Otherwise events that are lost
// again and again would keep it from ever getting there.
func (c *Recheck) Begin(active []*Table) {
	if c.Again = c.UnderWay(); c.Again {
		return
	}
	for _, tb := range active {
		c.tables = append(c.tables, &tableRecheck{tb: tb, wanted: mirror.NewParts(tb.Want, kernel.RowLength)})
	}
}

// End forgets what is left.
func (c *Recheck) End() (err error) {
	for _, r := range c.tables {
		if r.list != nil {
			err = errors.Join(err, r.list.Close())
		}
	}
	c.tables, c.Again = nil, false
	return err
}

// Run compares one part after the other, for about the given time, and writes what undoes the differences.
func (c *Recheck) Run(t *program.Transaction, k kernel.NFTables, within time.Duration) error {
	for end := time.Now().Add(within); c.UnderWay() && time.Now().Before(end); {
		r := c.tables[0]
		if !r.wanted.Left() && !r.listed && !t.Empty() {
			return nil // the kernel's counts are right only when it has the transaction
		}
		done, err := r.step(t.For(r.tb.Family), k)
		if err != nil {
			return fmt.Errorf("compare table %s %s with what it is to have: %w", r.tb.Family, program.TableName, err)
		}
		if done {
			c.tables = c.tables[1:]
		}
	}
	return nil
}

// tableRecheck is what is left of one table.
type tableRecheck struct {
	tb     *Table
	wanted *mirror.Parts
	listed bool            // what is to be listed is known
	lists  []program.SetID // sets to be listed
	list   kernel.SetReader
}

// step compares the next parts. It reports whether nothing is left.
func (r *tableRecheck) step(w program.Writer, k kernel.NFTables) (done bool, err error) {
	switch {
	case r.wanted.Left():
		for _, p := range r.wanted.Next() {
			err = errors.Join(err, undo(w, k, r.tb.scopeOfPart(p)))
		}
	case !r.listed:
		err = r.chooseLists(k)
	case len(r.lists) > 0:
		err = r.readList(w, k)
	default:
		return true, nil
	}
	return false, err
}

// chooseLists finds out which sets may have elements that nobody wants.
func (r *tableRecheck) chooseLists(k kernel.NFTables) error {
	was, err := k.SurveySets(r.tb.Family)
	if err != nil {
		return fmt.Errorf("read the sets of table %s %s: %w", r.tb.Family, program.TableName, err)
	}
	r.listed, r.lists = true, r.tb.miscounted(was, true)
	return nil
}

// readList deletes what nobody wants of the next part of a set.
func (r *tableRecheck) readList(w program.Writer, k kernel.NFTables) (err error) {
	id := r.lists[0]
	name := r.tb.Defs[id].Name
	if r.list == nil {
		if r.list, err = k.ReadSet(r.tb.Family, name); err != nil {
			return fmt.Errorf("list %s: %w", name, err)
		}
	}
	found := &kernel.Touched{Keys: map[string]bool{}}
	more, err := r.list.Next(func(e kernel.Found) { found.Keys[string(e.Key)] = true })
	if err != nil {
		return fmt.Errorf("list %s: %w", name, err)
	}
	if !more {
		err = r.list.Close()
		r.list, r.lists = nil, r.lists[1:]
	}
	s := r.tb.touchedScope(id, found, r.tb.owned(mirror.KeysOf{id: found.Bytes()}))
	s.list = nil // wanted elements were compared before
	return errors.Join(err, undo(w, k, s))
}

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
