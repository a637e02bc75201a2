package nft

import (
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// When the kernel dropped events, anything may have changed. To compare everything takes seconds in large tables, and no
// change of a Service must wait for that. So the engine looks at a part at a time. Repair begins, and an empty
// interference has it continue. The caller does that until nothing is left, with pauses and passes in between.
//
// First come the elements that are to be there, by look-ups. Then come those that nobody wants: the kernel counts the
// elements of its sets (Linux 6.16 and newer), and the engine lists those sets whose number is not as it should be, or
// not known. It takes quadratic time to list a large set, but the kernel hands it out in parts.

// look is the comparison of one table.
type look struct {
	tb     *table
	ports  []string // names of service ports that were not looked at yet; so are the others
	tables []uint32 // numbers of hash tables
	slot   int      // of the first of them
	addrs  []sharedAddress
	small  []setID // sets that are compared as a whole
	batch  lookBatch
	listed bool    // what is to be listed is known
	lists  []setID // sets to be listed
	list   setReader
}

type sharedAddress struct {
	set  setID
	addr netip.Addr
}

// setReader reads all elements of a set in parts. While the set changes, it may leave out some.
type setReader interface {
	// next calls each for the elements of the next part, and reports whether there are more.
	next(each func(foundElement)) (more bool, err error)
	close() error
}

// smallSets do not grow with the number of Services.
func smallSets() []setID {
	return []setID{idDispatch, idTargetPorts, idNodePortAddresses, idServiceCIDRs, idPodCIDRs}
}

// firstPart is how long Repair looks at first. Tables with a hundred Services are done then. Each further part takes
// nextPart.
const (
	firstPart = 20 * time.Millisecond
	nextPart  = 5 * time.Millisecond
)

// beginLook begins to look at everything. A look that is under way comes to its end first. Otherwise events that are lost
// again and again would keep it from ever getting there.
func (e *Engine) beginLook() {
	if e.lookAgain = len(e.looks) > 0; e.lookAgain {
		return
	}
	for _, tb := range e.active {
		e.looks = append(e.looks, newLook(tb))
	}
}

func newLook(tb *table) *look {
	l := &look{tb: tb, small: smallSets()}
	for name := range tb.ports {
		l.ports = append(l.ports, name)
	}
	for number := range tb.hash.numbers {
		l.tables = append(l.tables, number)
	}
	for _, id := range sharedSets() {
		for _, addr := range tb.sharedAddresses(id) {
			l.addrs = append(l.addrs, sharedAddress{id, addr})
		}
	}
	return l
}

// endLook forgets what was left to look at.
func (e *Engine) endLook() (err error) {
	for _, l := range e.looks {
		if l.list != nil {
			err = errors.Join(err, l.list.close())
		}
	}
	e.looks, e.lookAgain = nil, false
	return err
}

// look continues to look at everything, for about the given time, and undoes what it finds. After an error the next Apply
// compares everything.
func (e *Engine) look(within time.Duration) (Result, error) {
	t := &Transaction{}
	r := Result{Text: t.String, More: len(e.looks) > 0}
	if !r.More || e.rebuild || e.collected() { // the next Apply comes first
		return r, nil
	}
	err := e.lookOn(t, time.Now().Add(within))
	if err == nil {
		r, err = e.repair(t)
	}
	if err != nil {
		e.rebuild = true
		return r, errors.Join(err, e.endLook())
	}
	if len(e.looks) == 0 && e.lookAgain {
		e.lookAgain = false
		e.beginLook()
	}
	r.More = len(e.looks) > 0
	return r, nil
}

// lookOn looks at one part after the other.
func (e *Engine) lookOn(t *Transaction, end time.Time) error {
	for len(e.looks) > 0 && time.Now().Before(end) {
		l := e.looks[0]
		if l.wantedDone() && !l.listed {
			if !t.Empty() {
				return nil // the kernel's counts are right only when it has the transaction
			}
			if err := l.chooseLists(e); err != nil {
				return err
			}
		}
		done, err := l.step(t, e.conn)
		if err != nil {
			return fmt.Errorf("compare table %s %s with what it is to have: %w", l.tb.family, TableName, err)
		}
		if done {
			e.looks = e.looks[1:]
		}
	}
	return nil
}

// wantedDone reports whether all elements that are to be there were looked at.
func (l *look) wantedDone() bool {
	return len(l.batch.rows)+len(l.ports)+len(l.tables)+len(l.addrs)+len(l.small) == 0
}

// step looks at one part. It reports whether nothing is left.
func (l *look) step(t *Transaction, k kernel) (done bool, err error) {
	switch {
	case l.batch.left(l.tb):
		err = l.batch.step(l.tb, t, k)
	case len(l.ports) > 0:
		l.ports = l.batch.fill(l.tb, l.ports)
	case len(l.tables) > 0:
		err = l.tb.mendListed(t, k, l.nextSlots())
	case len(l.addrs) > 0:
		err = l.tb.mendListed(t, k, l.nextAddresses())
	case len(l.small) > 0:
		err = l.compareSmall(t, k)
	case len(l.lists) > 0:
		err = l.readList(t, k)
	default:
		return true, nil
	}
	return false, err
}

// lookBatch are the elements of some service ports.
type lookBatch struct {
	names    []string
	version  uint64 // of these service ports when the elements were listed
	want     *Transaction
	rows     []elementRow // not looked at yet
	restarts int
}

// elementRow are some elements that one request asks for.
type elementRow struct {
	set      setID
	elements []element
}

// batchSize is the smallest number of elements in a batch.
const batchSize = 1024

// maxRestarts bounds how often a batch begins again because its service ports change. The transactions of these changes
// were right, and the kernel took them.
const maxRestarts = 3

// fill lists the elements of the next service ports. It returns the names of the others.
func (b *lookBatch) fill(tb *table, names []string) (rest []string) {
	b.restarts = 0
	want := &Transaction{}
	for n, size := 0, 0; ; n++ {
		if n == len(names) || size >= batchSize {
			b.names, rest = names[:n], names[n:]
			break
		}
		if p := tb.ports[names[n]]; p != nil {
			tb.listPort(want, p)
		}
		size, _ = want.Elements()
	}
	b.start(tb, want)
	return rest
}

func (b *lookBatch) start(tb *table, want *Transaction) {
	b.want, b.rows, b.version = want, want.rowsOf(tb.family), tb.versionOf(b.names)
}

// rowsOf are the elements that a transaction adds to a table, in rows.
func (t *Transaction) rowsOf(f Family) (rows []elementRow) {
	for id := range t.elements[f.index()] {
		list := t.elements[f.index()][id].add
		for len(list) > 0 {
			n := min(rowLength, len(list))
			rows = append(rows, elementRow{setID(id), list[:n]})
			list = list[n:]
		}
	}
	return rows
}

// versionOf is another number when one of these service ports has changed.
func (tb *table) versionOf(names []string) (v uint64) {
	for _, name := range names {
		v *= 31
		if p := tb.ports[name]; p != nil {
			v += p.changed + 1
		}
	}
	return v
}

// left reports whether the batch has elements that are still wanted. If a service port has changed since, it lists them
// again.
func (b *lookBatch) left(tb *table) bool {
	if len(b.rows) == 0 || tb.versionOf(b.names) == b.version {
		return len(b.rows) > 0
	}
	if b.restarts++; b.restarts > maxRestarts {
		b.rows = nil
		return false
	}
	want := &Transaction{}
	for _, name := range b.names {
		if p := tb.ports[name]; p != nil {
			tb.listPort(want, p)
		}
	}
	b.start(tb, want)
	return len(b.rows) > 0
}

func (b *lookBatch) step(tb *table, t *Transaction, k kernel) error {
	row := b.rows[0]
	b.rows = b.rows[1:]
	return tb.mendRow(t, k, row, b.want)
}

// nextSlots lists the next slots of hash tables.
func (l *look) nextSlots() *Transaction {
	want := &Transaction{}
	number := l.tables[0]
	table := l.tb.hash.numbers[number]
	for range rowLength {
		if table == nil || l.slot >= len(table.slots) {
			l.tables, l.slot = l.tables[1:], 0
			break
		}
		want.add(l.tb.family, table.set(), l.tb.hashSlot(want, number, l.slot, table.at(l.slot), table.withPorts))
		l.slot++
	}
	return want
}

// nextAddresses lists the next addresses that service ports share.
func (l *look) nextAddresses() *Transaction {
	want := &Transaction{}
	n := min(rowLength, len(l.addrs))
	for _, a := range l.addrs[:n] {
		if l.tb.hasShared(a.set, a.addr) {
			want.add(l.tb.family, a.set, addressElement(want, a.set, a.addr))
		}
	}
	l.addrs = l.addrs[n:]
	return want
}

func (l *look) compareSmall(t *Transaction, k kernel) error {
	want := &Transaction{}
	l.tb.listSmallSets(want)
	id := l.small[0]
	l.small = l.small[1:]
	return compareSet(l.tb, t, k, id, want)
}

// mendListed looks at all elements of a list.
func (tb *table) mendListed(t *Transaction, k kernel, want *Transaction) error {
	for _, row := range want.rowsOf(tb.family) {
		if err := tb.mendRow(t, k, row, want); err != nil {
			return err
		}
	}
	return nil
}

// mendRow looks at some elements, one by one if they are not all as they should be.
func (tb *table) mendRow(t *Transaction, k kernel, row elementRow, want *Transaction) error {
	if has, err := tb.hasRow(k, row.set, want, row.elements); has || err != nil {
		return err
	}
	for _, e := range row.elements {
		if err := tb.mend(t, k, row.set, want, e.keyBytes(want.arena), &e); err != nil {
			return err
		}
	}
	return nil
}

// chooseLists finds out which sets may have elements that nobody wants.
func (l *look) chooseLists(e *Engine) error {
	was, err := e.conn.surveySets(l.tb.family)
	if err != nil {
		return fmt.Errorf("read the sets of table %s %s: %w", l.tb.family, TableName, err)
	}
	l.listed = true
	for id := range l.tb.defs {
		d := &l.tb.defs[id]
		if n, counted := was.counts[d.name]; d.isCounted() && (!counted || n != e.count(l.tb, setID(id))) {
			l.lists = append(l.lists, setID(id))
		}
	}
	return nil
}

// readList deletes what nobody wants of the next part of a set.
func (l *look) readList(t *Transaction, k kernel) (err error) {
	id := l.lists[0]
	name := l.tb.defs[id].name
	if l.list == nil {
		if l.list, err = k.readSet(l.tb.family, name); err != nil {
			return fmt.Errorf("list %s: %w", name, err)
		}
	}
	found := touched{keys: map[string]bool{}}
	more, err := l.list.next(func(e foundElement) { found.keys[string(e.key)] = true })
	if err != nil {
		return fmt.Errorf("list %s: %w", name, err)
	}
	if !more {
		err = l.list.close()
		l.list, l.lists = nil, l.lists[1:]
	}
	return errors.Join(err, l.deleteUnwanted(t, k, id, &found))
}

func (l *look) deleteUnwanted(t *Transaction, k kernel, id setID, found *touched) error {
	want := l.tb.owned(keysOf{id: found.bytes()})
	for _, e := range want.elements[l.tb.family.index()][id].add {
		delete(found.keys, string(e.keyBytes(want.arena)))
	}
	return found.compare(l.tb, t, k, id, want)
}
