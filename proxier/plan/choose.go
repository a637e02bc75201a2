package plan

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// selection is a part of the endpoints of a port: those that have all of some flags, and none of others. The zero value
// selects none.
type selection struct {
	some     bool // there is one
	all, not flags
}

func (s selection) has(f flags) bool { return s.some && f&s.all == s.all && f&s.not == 0 }

// good reports whether the selection has endpoints, and only good ones.
func (s selection) good() bool { return s.some && s.not&bad != 0 }

// tiers are the parts of a pool, best first. Endpoints of one tier get all connections. When none is good, on-all-down
// decides.
var tiers = [...]selection{
	{all: ready, not: bad | backup},
	{all: ready | backup, not: bad},
	{all: draining, not: bad | backup},
	{all: draining, not: bad},
}

// fallbacks are the tiers for the case that no endpoint is good, as on-all-down asks for them.
var fallbacks = map[state.AllDown][]selection{
	state.KeepAll:    {{all: ready, not: backup}, {all: ready}, {all: draining, not: backup}, {all: draining}},
	state.BackupOnly: {{all: ready | backup}, {all: ready}, {all: draining | backup}, {all: draining}},
	state.RefuseAll:  nil,
}

// choose selects the endpoints of a pool: the best tier that has endpoints, and in it the nearest level of topology. So a
// good endpoint far away comes before a bad one nearby, and before a backup. The scope is local, or 0 for all endpoints.
//
// The pools Cluster and Local decide separately: a node keeps using its last endpoint while it drains, even if other nodes
// have ready endpoints.
func (c *candidates) choose(scope flags) selection {
	for _, list := range [...][]selection{tiers[:], fallbacks[c.allDown]} {
		for _, tier := range list {
			if s := c.nearest(tier, scope); s.some {
				return s
			}
		}
	}
	return selection{all: draining | scope}
}

// nearest narrows a tier to the nearest level that has an endpoint of it. Local endpoints and draining ones have no levels.
func (c *candidates) nearest(tier selection, scope flags) selection {
	tier.all |= scope
	tier.some = true
	if scope == 0 && tier.all&ready != 0 {
		for _, level := range c.levels {
			s := selection{some: true, all: tier.all | level, not: tier.not}
			if c.any(s) {
				return s
			}
		}
	}
	tier.some = c.any(tier)
	return tier
}

func (c *candidates) any(of selection) bool {
	return slices.ContainsFunc(c.list, func(e candidate) bool { return of.has(e.flags) })
}

// count returns the number of endpoints that a selection has.
func (c *candidates) count(of selection) (n int) {
	for i := range c.list {
		if of.has(c.list[i].flags) {
			n++
		}
	}
	return n
}

// down reports whether there are endpoints that could get connections, and none of them is good.
func (c *candidates) down() bool {
	has := func(all, not flags) bool { return c.any(selection{some: true, all: all, not: not}) }
	return !has(ready, bad) && !has(draining, bad) && (has(ready, 0) || has(draining, 0))
}

// several reports whether a selection would have several endpoints if all of them were good: one that has just been left
// out may still refuse a connection that it got before.
func (c *candidates) several(of selection) bool {
	return of.some && c.count(selection{some: true, all: of.all &^ backup}) > 1
}

// findLevels finds to which endpoints the Cluster pool of the port may be limited: those for this node, and those
// for this zone.
//
// Hints count only if every ready endpoint has them. If a single hint is missing, the controller is in the middle of a
// change or has given up, and the remaining hints could overload a few endpoints or leave none. When hints do not count,
// or name neither this node nor its zone, the next wider level is used, so a pool never becomes empty because of hints.
func (c *candidates) findLevels() {
	all := nodeHinted | zoneHinted
	for i := range c.list {
		if f := c.list[i].flags; f&ready != 0 {
			all &= f
		}
	}
	c.levels = c.levels[:0]
	if all&nodeHinted != 0 {
		c.levels = append(c.levels, forThisNode)
	}
	if all&zoneHinted != 0 {
		c.levels = append(c.levels, forThisZone)
	}
}

// find returns an endpoint; nil: there is none.
func (c *candidates) find(at netip.AddrPort) *candidate {
	hi, lo := numbers(at.Addr())
	i, found := slices.BinarySearchFunc(c.list, at.Port(), func(e candidate, port uint16) int {
		return cmp.Or(cmp.Compare(e.hi, hi), cmp.Compare(e.lo, lo), cmp.Compare(e.port, port))
	})
	if !found {
		return nil
	}
	return &c.list[i]
}

// maxChoices is how many endpoints of all ports of a Service are watched. A node checks fewer of all Services.
const maxChoices = 1 << 17

// addChoices notes what became of the endpoints. Nobody watches those beyond maxChoices.
func (c *candidates) addChoices(list []Choice, protocol state.Protocol, family state.Family, cluster, near selection) []Choice {
	list = slices.Grow(list, min(len(c.list), maxChoices-len(list)))
	for i := range c.list {
		e := &c.list[i]
		if e.flags&(ready|draining) == 0 {
			continue
		}
		if len(list) == maxChoices {
			break
		}
		list = append(list, Choice{
			Protocol: protocol, At: e.addr(family), Local: e.flags&local != 0, Backup: e.flags&backup != 0, Accepts: e.flags&accepts != 0,
			Use: useOf(e.flags, cluster.has(e.flags) || near.has(e.flags)),
		})
	}
	return list
}

func useOf(f flags, gets bool) Use {
	switch {
	case f&failed != 0 && f&bad == 0:
		return KeptShare
	case gets && f&bad != 0:
		return KeptLast
	case gets:
		return InUse
	case f&bad != 0:
		return Ejected
	}
	return Idle
}

// sortChoices leaves one choice of each endpoint.
func sortChoices(list []Choice) []Choice {
	slices.SortFunc(list, func(a, b Choice) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Use, b.Use))
	})
	return slices.CompactFunc(list, func(a, b Choice) bool { return a.At == b.At && a.Protocol == b.Protocol })
}

// judge marks the endpoints of a port that are not good. Of those that are only silent, at most the given percentage is.
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

// share is how many of n endpoints are ejected because they are silent: at least one of two, and never the last one.
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
