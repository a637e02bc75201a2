package nft

import "fmt"

// The kernel tells the engine of each commit of another process. The sweep is the net below that: each Check compares
// how many elements every set has, and looks up the elements of some service ports, one after the other. It finds what
// no message told of.

// sweepParts is how many Checks look at all service ports. The loop calls it every 5 seconds, so one round takes 10
// minutes. BenchmarkCheck: a call takes 10 ms for 10,000 service ports of 10 endpoints, and 4 ms for 1,000.
const sweepParts = 120

// Check compares both tables with what the engine made: chains, rules and sets, the stamp of the latest transaction, and
// how many elements each set has. Each call looks up the elements of some service ports as well, other ones each time.
// It changes nothing. Repair undoes what it found.
func (e *Engine) Check() (Interference, error) {
	var i Interference
	for _, tb := range e.active {
		if err := e.check(&i, tb); err != nil {
			return Interference{}, fmt.Errorf("read table %s %s: %w", tb.family, TableName, err)
		}
	}
	i.unheard = !i.Empty()
	return i, nil
}

func (e *Engine) check(i *Interference, tb *table) error {
	was, err := e.conn.survey(tb.family)
	if err != nil {
		return err
	}
	lost, err := e.lostContents(tb, was)
	i.replaced = i.replaced || lost
	i.Structure = i.Structure || lost || !tb.intact(was) || tb.lostOwner(was)
	if err != nil || lost || e.rebuild || e.collected() {
		return err // what is collected is not in the kernel yet
	}
	e.checkCounts(i, tb, was)
	return tb.sweepNext(i, e.conn)
}

// sweep has the service ports of a table that this round has not looked at.
type sweep struct {
	names []string
	each  int // in one call
}

// next returns the names of the ports for one call.
func (s *sweep) next(ports map[string]*port) []string {
	if len(s.names) == 0 {
		for name := range ports {
			s.names = append(s.names, name)
		}
		s.each = (len(s.names) + sweepParts - 1) / sweepParts
	}
	n := min(s.each, len(s.names))
	list := s.names[:n]
	s.names = s.names[n:]
	return list
}

// checkCounts notes the sets that do not have as many elements as the engine wrote.
func (e *Engine) checkCounts(i *Interference, tb *table, was existing) {
	for id := range tb.defs {
		d := &tb.defs[id]
		if n, counted := was.counts[d.name]; counted && d.isCounted() && n != e.count(tb, setID(id)) {
			i.at(tableSet{family: tb.family, set: d.name}).many = true
		}
	}
}

// count is how many elements a set is to have.
func (e *Engine) count(tb *table, id setID) int { return int(e.counts[tb.family.index()][id].Load()) }

// isCounted reports whether the kernel's count of the elements can be compared. Linux before 6.16 does not count. Of sets
// of ranges, it counts the ranges, and not their ends. Into dynamic sets, rules write.
func (d *setDef) isCounted() bool { return !d.dynamic && !d.interval }

// sweepNext looks up the elements of the next service ports, and notes those that are not as they should be.
func (tb *table) sweepNext(i *Interference, k kernel) error {
	t := &Transaction{}
	for _, name := range tb.swept.next(tb.ports) {
		if p := tb.ports[name]; p != nil { // otherwise it went since the round began
			tb.listPort(t, p)
		}
	}
	for _, row := range t.rowsOf(tb.family) {
		has, err := tb.hasRow(k, row.set, t, row.elements)
		if err != nil {
			return err
		}
		if has {
			continue
		}
		at := i.at(tableSet{family: tb.family, set: tb.defs[row.set].name})
		for _, e := range row.elements {
			at.touch(e.keyBytes(t.arena))
		}
	}
	return nil
}

// hasRow reports whether the kernel has some elements of a set.
func (tb *table) hasRow(k kernel, id setID, t *Transaction, row []element) (bool, error) {
	d := &tb.defs[id]
	keys := make([][]byte, len(row))
	for i, e := range row {
		keys[i] = e.keyBytes(t.arena)
	}
	i, same := 0, true
	_, err := k.lookupRow(tb.family, d.name, keys, func(found foundElement) {
		same = same && i < len(row) && found.holds(row[i], t.arena, d)
		i++
	})
	if err != nil {
		return false, fmt.Errorf("look up elements of %s: %w", d.name, err)
	}
	return same && i == len(row), nil
}
