package nft

import (
	"fmt"
	"slices"
)

// The kernel tells the engine of each commit of another process. The sweep is the net below that: each call of Intact
// compares how many elements every set has, and looks up the elements of some service ports, one after the other. It
// finds what no message told of.

// sweepParts is how many calls of Intact look at all service ports. The loop calls it every 5 seconds, so one round takes
// 10 minutes. BenchmarkIntact: a call takes 10 ms for 10,000 service ports of 10 endpoints, and 4 ms for 1,000.
const sweepParts = 120

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

// countsMatch reports whether each set has as many elements as the engine wrote. Linux before 6.16 does not count. Of
// sets of ranges, it counts the ranges, and not their ends; they are left out.
func (e *Engine) countsMatch(tb *table, was existing) bool {
	for id := range tb.defs {
		d := &tb.defs[id]
		n, counted := was.counts[d.name]
		if !d.dynamic && !d.interval && counted && int64(n) != e.counts[tb.family.index()][id].Load() {
			return false
		}
	}
	return true
}

// sweep looks up the elements of the next service ports. It reports whether the kernel has them all.
func (tb *table) sweepNext(k kernel) (bool, error) {
	t := &Transaction{}
	for _, name := range tb.swept.next(tb.ports) {
		p := tb.ports[name]
		if p == nil {
			continue // it went since the round began
		}
		tb.listPort(t, p)
	}
	for id := range tb.defs {
		list := t.elements[tb.family.index()][id].add
		for row := range slices.Chunk(list, rowLength) {
			if has, err := tb.hasRow(k, setID(id), t, row); !has || err != nil {
				return false, err
			}
		}
	}
	return true, nil
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
