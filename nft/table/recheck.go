package table

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/ledger"
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
func (c *Recheck) Begin(active []*Table, k kernel.NFTables) {
	if c.Again = c.UnderWay(); c.Again {
		return
	}
	for _, tb := range active {
		c.tables = append(c.tables, &tableRecheck{tb: tb, wanted: ledger.NewCursor(tb.Want.Ledger), lookups: lookups{tb: tb, k: k, differs: tb.Want.Correct}})
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
	for end := time.Now().Add(within); c.UnderWay() && t.Empty(); {
		r := c.tables[0]
		done, err := r.run(k, end)
		if err != nil {
			return fmt.Errorf("compare table %s %s with what it is to have: %w", r.tb.Family, program.TableName, err)
		}
		r.tb.Want.Corrected()
		r.tb.Want.Write(t.For(r.tb.Family))
		if done {
			c.tables = c.tables[1:]
		}
		if time.Now().After(end) {
			return nil
		}
	}
	return nil
}

// tableRecheck is what is left of one table.
type tableRecheck struct {
	tb      *Table
	wanted  *ledger.Cursor
	lookups lookups
	listed  bool            // what is to be listed is known
	lists   []program.SetID // sets to be listed
	list    kernel.SetReader
	known   map[string]bool // keys of the set that is listed
}

// run compares parts until a time. It reports whether nothing is left.
func (r *tableRecheck) run(k kernel.NFTables, end time.Time) (done bool, err error) {
	for r.wanted.Left() && err == nil && time.Now().Before(end) {
		r.wanted.Next(kernel.RowLength, func(a *ledger.Account, is *ledger.Record) {
			if err == nil {
				err = r.lookups.add(a, is)
			}
		})
	}
	if err = errors.Join(err, r.lookups.finish()); err != nil || r.wanted.Left() || len(r.tb.Want.Pending()) > 0 {
		return false, err // the kernel's counts are right only when it has the transaction
	}
	if !r.listed {
		was, err := k.SurveySets(r.tb.Family)
		if err != nil {
			return false, fmt.Errorf("read the sets of table %s %s: %w", r.tb.Family, program.TableName, err)
		}
		r.listed, r.lists = true, r.tb.miscounted(was, true) // these may have elements that nobody wants
		return false, errors.Join(r.tb.loadSet(k, program.ServiceCIDRs), r.tb.loadSet(k, program.PodCIDRs),
			r.tb.loadSet(k, program.NodePodCIDRs))
	}
	for len(r.lists) > 0 && err == nil && time.Now().Before(end) {
		err = r.readList(k)
	}
	return len(r.lists) == 0, err
}

// readList finds what nobody wants in the next part of a set.
func (r *tableRecheck) readList(k kernel.NFTables) (err error) {
	id := r.lists[0]
	if r.list == nil {
		if r.list, err = k.ReadSet(r.tb.Family, id); err != nil {
			return fmt.Errorf("list %s: %w", id.Name(), err)
		}
		r.known = map[string]bool{}
		r.tb.Want.Each((*ledger.Account).Wanted, func(_ *ledger.Account, is *ledger.Record) {
			if is.Set == id {
				r.known[string(is.Key)] = true
			}
		})
	}
	unknown := map[string]bool{}
	more, err := r.list.Next(func(e kernel.Found) {
		if !r.known[string(e.Key)] {
			unknown[string(e.Key)] = true
		}
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", id.Name(), err)
	}
	if !more {
		err = r.list.Close()
		r.list, r.lists = nil, r.lists[1:]
	}
	if len(unknown) == 0 {
		return err
	}
	return errors.Join(err, r.tb.loadKeys(k, id, unknown)) // some may have been added since
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
	changed := !tb.Intact(was) || slices.ContainsFunc(tb.Defs[:], func(d program.Set) bool { return was.Retuned(&d) })
	if changed {
		tb.undoStructure(w, was)
	}
	if err := tb.loadTouched(k, i, changed); err != nil {
		return false, err
	}
	tb.Want.Corrected()
	tb.Want.Write(w)
	return false, nil
}

// loadTouched enters what the kernel has where an interference touched it. If chains changed, the map that leads to them is read
// as a whole: its elements follow a chain that another process renames. The affinity map is left out: its entries are those of
// clients.
func (tb *Table) loadTouched(k kernel.NFTables, i *kernel.Interference, chains bool) (err error) {
	for id := range program.SetCount {
		at := i.Sets[kernel.TableSet{Family: tb.Family, Set: id}]
		whole := chains && id == program.Dispatch
		switch {
		case err != nil || tb.Defs[id].Dynamic || at == nil && !whole:
		case !whole && at.Many && i.Unheard: // the recheck comes to large sets
		case whole || at.Many || tb.Defs[id].Interval:
			err = tb.loadSet(k, id)
		default:
			err = tb.loadKeys(k, id, at.Keys)
		}
	}
	return err
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
		i.At(kernel.TableSet{Family: tb.Family, Set: id}).Many = true
	}
	return tb.checkNext(i, k)
}

// checkNext looks up the elements of the next accounts.
func (tb *Table) checkNext(i *kernel.Interference, k kernel.NFTables) (err error) {
	if tb.round == nil || !tb.round.Left() {
		tb.round = ledger.NewCursor(tb.Want.Ledger)
	}
	l := lookups{tb: tb, k: k, differs: func(_ *ledger.Account, r *ledger.Record, _ ledger.State) {
		i.At(kernel.TableSet{Family: tb.Family, Set: r.Set}).Touch(r.Key)
	}}
	tb.round.Part(CheckParts, func(a *ledger.Account, r *ledger.Record) {
		if err == nil {
			err = l.add(a, r)
		}
	})
	return errors.Join(err, l.finish())
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
	replaceFlowtable(w, was, p)
	w.AddChains(d.wrong)
	if tb.Owner.Reflag, tb.Owner.Next = was.Asleep(), was.Flags&^unix.NFT_TABLE_F_DORMANT; tb.Owner.Reflag {
		changed = append(changed, "(put to sleep)")
	}
	return changed, nil
}
