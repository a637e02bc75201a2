package plan

import (
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// judge marks the endpoints of a port that are not good. Of those that are only silent, it leaves out the given percentage.
func (c *candidates) judge(health state.Health, maxEjected int, protocol state.Protocol, family state.Family) {
	var silent [2][]silence // primaries and backups
	for i := range health {
		f := &health[i]
		if f.Protocol != protocol || state.FamilyOf(f.At.Addr()) != family {
			continue
		}
		e := c.find(f.At)
		if e == nil {
			continue
		}
		e.flags |= failed
		if f.Accepts {
			e.flags |= accepts
		}
		if f.Sure {
			e.flags |= bad
		} else if e.flags&(ready|draining) != 0 && maxEjected > 0 {
			of := toInt(e.flags&backup != 0)
			silent[of] = append(silent[of], silence{e, f.Since})
		}
	}
	c.judgeSilent(silent[0], 0, maxEjected)
	c.judgeSilent(silent[1], backup, maxEjected)
	if !c.any(selection{some: true, all: ready, not: failed | backup}) &&
		c.any(selection{some: true, all: ready | backup, not: bad}) {
		setBad(silent[0]) // a good backup takes the place of all primaries
	}
}

// silence is an endpoint that failed without a word.
type silence struct {
	*candidate
	since time.Time
}

// judgeSilent counts as bad, of the silent primaries or backups, a share of those that are not surely bad: those that
// failed first. If all have failed, they all count, and what is left decides.
func (c *candidates) judgeSilent(list []silence, kind flags, maxEjected int) {
	if len(list) == 0 {
		return
	}
	n := 0
	for i := range c.list {
		if f := c.list[i].flags; f&backup == kind && f&(ready|draining) != 0 && f&bad == 0 {
			n++
		}
	}
	if len(list) < n {
		// The list is in the order of addresses, which decides between endpoints that failed at the same time.
		slices.SortStableFunc(list, func(a, b silence) int { return a.since.Compare(b.since) })
		list = list[:min(len(list), share(n, maxEjected))]
	}
	setBad(list)
}

// share is how many of n endpoints are left out because they are silent: at least one of two, and never the last one.
func share(n, maxEjected int) int {
	if n < 2 {
		return 0
	}
	return min(max(1, n*maxEjected/100), n-1)
}

func setBad(list []silence) {
	for i := range list {
		list[i].flags |= bad
	}
}
