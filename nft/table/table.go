package table

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/contents/elements"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/ledger"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// Table is one family's table in the kernel: what it is to have, and what the engine knows of it.
type Table struct {
	form
	Want   *elements.Contents
	Counts counts

	image *imageReader   // what the kernel has, until the first Apply
	round *ledger.Cursor // of the periodic check
	Owner ownership

	stamps stamps
}

func New(f program.Family, affinitySize uint32, given program.Program, owner bool) *Table {
	tb := &Table{form: form{Family: f, Defs: program.Program{Family: f}.Sets()}, Want: elements.New(f, given)}
	tb.Owner.Wanted = owner
	if affinitySize > 0 {
		tb.Defs[program.Affinity].Size = affinitySize
	}
	return tb
}

// Applied notes that the kernel has what it is to have.
func (tb *Table) Applied() {
	tb.Want.NoteApplied()
	tb.Counts.note(tb.Want)
	tb.image = nil
}

// Repaired notes that the kernel has what was pending, while nothing else changed.
func (tb *Table) Repaired() {
	tb.Want.Settle()
	tb.Counts.note(tb.Want)
}

// WriteGuards writes the guards that the kernel lacks. If nobody knows what it has, it writes those of the addresses.
func (tb *Table) WriteGuards(w program.Writer, addrs []netip.Addr, known bool) {
	if known {
		tb.Want.WriteSet(w, program.IPVSAddresses)
		return
	}
	for _, a := range addrs {
		if program.FamilyOf(a) == tb.Family {
			w.Insert(program.IPVSAddresses, w.Element("", func(b *program.Builder) { b.Addr(a) }, nil))
		}
	}
}

// Guarded notes that the kernel has the guards.
func (tb *Table) Guarded() {
	tb.Want.SettleSet(program.IPVSAddresses)
	tb.Counts.note(tb.Want)
}

// keeps reports whether the kernel's table can stay.
func (tb *Table) keeps(found kernel.Existing) bool {
	return found.Table && found.SameLayout && !tb.Owner.needsNewTable(found, tb.Want.HasAffinity())
}

// Intact reports whether the table is awake and has exactly the chains, rules and sets that belong to it. Objects and
// flowtables of others do not count: no rule of Verdict uses them, so they change nothing.
func (tb *Table) Intact(was kernel.Existing) bool {
	if !was.SameLayout || was.Asleep() || len(was.Sets) != len(tb.Defs) || !tb.hasSets(was) || !hasFlowtable(was, tb.Want.Program()) {
		return false
	}
	d := tb.compareChains(was, tb.Want.Program(), tb.Want.Chains.All(tb.Want.Program()))
	return d.empty()
}

// lostContents reports whether a table lacks a set or the stamp of the latest transaction. Then its elements may be any.
func (tb *Table) lostContents(k kernel.NFTables, was kernel.Existing) (bool, error) {
	if !tb.keeps(was) || !tb.hasSets(was) {
		return true, nil
	}
	stamped, err := tb.stamps.now.in(tb.Family, k)
	return !stamped, err
}

// miscounted are the sets that do not have as many elements as the engine wrote, and on demand those whose elements the
// kernel does not count.
func (tb *Table) miscounted(was kernel.Existing, uncounted bool) (ids []program.SetID) {
	for id := range tb.Defs {
		d := &tb.Defs[id]
		if n, counted := was.Counts[d.Name]; d.IsCounted() && (counted && n != tb.Counts.Of(program.SetID(id)) || !counted && uncounted) {
			ids = append(ids, program.SetID(id))
		}
	}
	return ids
}

// Adopt reads what an earlier process left.
func (tb *Table) Adopt(k kernel.NFTables) error {
	found, err := k.SurveyTable(tb.Family)
	if err != nil || !found.Table || !found.SameLayout {
		return err
	}
	if tb.image, err = tb.readImage(k); err != nil {
		return err
	}
	var was *elements.Image
	if tb.image != nil {
		was = tb.image.Image
	}
	var tokens []elements.EarlierToken
	var devices []string
	for _, set := range []program.SetID{program.StickyEndpoints, program.StickyAddresses, program.FastPathDevices} {
		read := k.DumpElements(tb.Family, set, func(e kernel.Found) {
			if set == program.FastPathDevices {
				devices = append(devices, unix.ByteSliceToString(e.Key))
				return
			}
			if token, ok := elements.ReadToken(tb.Family, e.Key, e.Data, e.Comment); ok {
				tokens = append(tokens, token)
			}
		})
		if !errors.Is(read, unix.ENOENT) { // another program has deleted the map, or an earlier version did not have it
			err = errors.Join(err, read)
		}
	}
	tb.Want.OfferBy(devices)
	tb.Want.Adopt(was, tokens)
	return err
}

// readImage reads the image of a table; nil: there is no such table, or another program deletes it at this moment.
func (tb *Table) readImage(k kernel.NFTables) (*imageReader, error) {
	generation, err := k.Generation()
	if err != nil {
		return nil, err
	}
	was, err := k.SurveySets(tb.Family)
	if err != nil || !tb.canBeRead(was) {
		return nil, err
	}
	r := &imageReader{Image: elements.NewImage(), kernel: k, family: tb.Family, generation: generation}
	for _, read := range []func() error{r.readStamps, r.readPools, r.readFirewalled, r.readClasses, r.readHashed, r.readRows} {
		err = read()
		if errors.Is(err, unix.ENOENT) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// CheckParts is how many Checks look at all service ports. The loop calls it every 5 seconds, so one round takes 10
// minutes. BenchmarkCheck: a call takes 10 ms for 10,000 service ports of 10 endpoints, and 4 ms for 1,000.
const CheckParts = 120

// counts are the numbers of elements that the latest transaction left in each set. The affinity map is not counted,
// because rules fill it. Any goroutine may read them.
type counts [program.SetCount]atomic.Int64

func (c *counts) note(want *elements.Contents) {
	for id := range program.SetCount {
		c[id].Store(int64(want.Count(id)))
	}
	c[program.Generation].Store(1)
}

// Of is how many elements a set is to have.
func (c *counts) Of(id program.SetID) int { return int(c[id].Load()) }

// Tables are those that the engine serves.
type Tables []*Table

// In is the table of a family; nil: the engine does not serve it.
func (ts Tables) In(f program.Family) *Table {
	for _, tb := range ts {
		if tb.Family == f {
			return tb
		}
	}
	return nil
}

// Adopt reads what an earlier process left.
func (ts Tables) Adopt(k kernel.NFTables) error {
	for _, tb := range ts {
		if err := tb.Adopt(k); err != nil {
			return fmt.Errorf("read table %s %s: %w", tb.Family, program.TableName, err)
		}
	}
	return nil
}

// OwnerOf finds the service port that has an element. A refusal is rare, and an index would take memory all the time.
func (ts Tables) OwnerOf(f program.Family, set program.SetID, key []byte) (id contents.PortID, found bool) {
	ts.In(f).Want.Each((*ledger.Account).Wanted, func(a *ledger.Account, r *ledger.Record) {
		if r.Set == set && bytes.Equal(r.Key, key) && a.Owner() != "" {
			id, found = contents.PortID{Family: f, Name: a.Owner()}, true
		}
	})
	return id, found
}

// Room names the service ports that got less than they asked for, and for which there is room.
func (ts Tables) Room() (ports []contents.PortID) {
	for _, tb := range ts {
		for _, name := range tb.Want.TakeWaiting() {
			ports = append(ports, contents.PortID{Family: tb.Family, Name: name})
		}
	}
	return ports
}

// Waits reports for each Service that may have begun or stopped waiting since the last call whether it waits.
func (ts Tables) Waits() map[string]bool {
	waits := map[string]bool{}
	for _, tb := range ts {
		for _, service := range tb.Want.Later.TakeTurned() {
			waits[service] = slices.ContainsFunc(ts, func(tb *Table) bool { return tb.Want.Later.Waits(service) })
		}
	}
	return waits
}

// ChangedPorts counts the elements that service ports change, with those of the hash tables that begin to come or leave for them.
func (ts Tables) ChangedPorts() map[contents.PortID]serviceport.Counts {
	counts := map[contents.PortID]serviceport.Counts{}
	add := func(id contents.PortID, n serviceport.Counts) {
		n.Add(counts[id])
		counts[id] = n
	}
	for _, tb := range ts {
		for i, n := range tb.Want.PendingCounts() {
			if owner := tb.Want.Pending()[i].Owner(); owner != "" && n != (serviceport.Counts{}) {
				add(contents.PortID{Family: tb.Family, Name: owner}, n)
			}
		}
		for name, n := range tb.Want.Hash.TakePaid() {
			add(contents.PortID{Family: tb.Family, Name: name}, serviceport.Counts{serviceport.Slot: int32(n)})
		}
	}
	return counts
}

// WriteStamps adds the next stamp of each table that the transaction changes, or of all tables. whole are the families whose
// tables it writes as a whole.
func (ts Tables) WriteStamps(t *program.Transaction, instance uint32, all bool, whole [2]bool) {
	for _, tb := range ts {
		tb.stamps.coming = tb.stamps.now
		if all || t.Concerns(tb.Family) {
			tb.stamps.write(t.For(tb.Family), instance, tb.compiled.fingerprintOf(tb.Want.Program(), tb.Defs[:]), whole[tb.Family.Index()])
		}
	}
}

// KeepStamps notes that the kernel has the stamps of the latest transaction.
func (ts Tables) KeepStamps() {
	for _, tb := range ts {
		tb.stamps.now = tb.stamps.coming
	}
}

// ReadBack finds out whether a transaction was applied: the kernel has the next stamp, or it has not.
func (ts Tables) ReadBack(k kernel.NFTables, t *program.Transaction, cause error) (kernel.Outcome, error) {
	for _, tb := range ts {
		if !t.Concerns(tb.Family) {
			continue
		}
		applied, err := tb.stamps.coming.in(tb.Family, k)
		switch {
		case err != nil:
			err = fmt.Errorf("find out whether the transaction was applied: %w; the next one compares everything with the kernel", err)
			return kernel.Unknown, errors.Join(cause, err)
		case !applied:
			return kernel.Rejected, cause
		}
		break // the kernel applies all or nothing
	}
	return kernel.Applied, nil
}

// Reflag adds the flags that tables are to have: they wake tables, and make the engine their owner.
func (ts Tables) Reflag(t *program.Transaction) {
	for _, tb := range ts {
		if tb.Owner.Reflag {
			t.Do(program.Operation{Kind: program.AddTable, Family: tb.Family, Flags: tb.Owner.Next})
		}
		tb.Owner.Reflag = false
	}
}
