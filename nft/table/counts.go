package table

import (
	"sync/atomic"

	"github.com/verdict-proxy/verdict/nft/program"
)

// counts are the numbers of elements that the latest transaction left in each set. The affinity map is not counted,
// because rules fill it. Any goroutine may read them.
type counts [program.SetCount]atomic.Int64

// Note counts what an applied transaction changed in a table. If it wrote the whole table, it has all elements.
func (c *counts) Note(w program.Writer, whole bool) {
	for id := range c {
		changes, n := &w.Changes[w.Family.Index()][id], &c[id]
		if whole {
			n.Store(int64(len(changes.Add)))
		} else if more := len(changes.Add) - len(changes.Delete); more != 0 {
			n.Add(int64(more))
		}
	}
}

// store counts what a table has after a difference to what was there.
func (c *counts) store(totals *[program.SetCount]int) {
	for id, n := range totals {
		c[id].Store(int64(n))
	}
}

// Of is how many elements a set is to have.
func (c *counts) Of(id program.SetID) int { return int(c[id].Load()) }
