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
	{all: draining | backup, not: bad},
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

// several reports whether a selection would have several endpoints if all of them were good: one that has just been left
// out may still refuse a connection that it got before.
func (c *candidates) several(of selection) bool {
	return of.some && c.count(selection{some: true, all: of.all &^ backup}) > 1
}

// judge finds the levels of topology of the current port, and marks the endpoints that are not good.
func (p *Planner) judge(protocol state.Protocol, family state.Family) {
	p.candidates.findLevels()
	if len(p.Health) == 0 {
		return
	}
	var silent [2][]silence // primaries and backups
	for i := range p.Health {
		f := &p.Health[i]
		if f.Protocol != protocol || state.FamilyOf(f.At.Addr()) != family {
			continue
		}
		c := p.candidates.find(f.At)
		if c == nil {
			continue
		}
		c.flags |= failed
		if f.Accepts {
			c.flags |= accepts
		}
		if f.Sure {
			c.flags |= bad
		} else if c.flags&(ready|draining) != 0 && p.MaxEjected > 0 {
			of := toInt(c.flags&backup != 0)
			silent[of] = append(silent[of], silence{c, f.Since})
		}
	}
	p.judgeSilent(silent[0], 0)
	p.judgeSilent(silent[1], backup)
	if !p.candidates.any(selection{some: true, all: ready, not: failed | backup}) &&
		p.candidates.any(selection{some: true, all: ready | backup, not: bad}) {
		setBad(silent[0]) // a good backup takes the place of all primaries
	}
	if p.svc.HealthCheckNodePort != 0 {
		p.endpoints.noteLocal(family, p.candidates.list)
	}
}

// silence is an endpoint that failed without a word.
type silence struct {
	*candidate
	since time.Time
}

// judgeSilent counts as bad, of the silent primaries or backups, a share of those that are not surely bad: those that
// failed first. If all have failed, they all count, and what is left decides.
func (p *Planner) judgeSilent(list []silence, kind flags) {
	if len(list) == 0 {
		return
	}
	n := 0
	for i := range p.candidates.list {
		if f := p.candidates.list[i].flags; f&backup == kind && f&(ready|draining) != 0 && f&bad == 0 {
			n++
		}
	}
	if len(list) < n {
		slices.SortStableFunc(list, func(a, b silence) int { return a.since.Compare(b.since) }) // before: by address
		list = list[:min(len(list), p.share(n))]
	}
	setBad(list)
}

// share is how many of n endpoints are left out because they are silent: at least one of two, and never the last one.
func (p *Planner) share(n int) int {
	if n < 2 {
		return 0
	}
	return min(max(1, n*p.MaxEjected/100), n-1)
}

func setBad(list []silence) {
	for i := range list {
		list[i].flags |= bad
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

// noteLocal remembers for healthCheckNodePort which addresses on this node are bad. One that is good on any port is good.
func (e *endpoints) noteLocal(family state.Family, at []candidate) {
	if e.localBad == nil {
		e.localBad = map[netip.Addr]bool{}
	}
	for i := range at {
		if c := &at[i]; c.flags&(ready|local) == ready|local {
			addr := address(family, c.hi, c.lo)
			before, known := e.localBad[addr]
			e.localBad[addr] = c.flags&bad != 0 && (before || !known)
		}
	}
}

// Use is what a plan makes of an endpoint.
type Use uint8

// The uses. An endpoint of several ports has the first one that holds for any of them.
const (
	InUse     Use = iota // it gets connections
	KeptLast             // it has failed, and gets connections because no endpoint is good
	KeptShare            // it has failed, and counts as good because no larger part of the pool may be left out
	Idle                 // it is good, and others get the connections
	LeftOut              // it has failed
)

// Choice is what a plan makes of one endpoint.
type Choice struct {
	Protocol state.Protocol
	At       netip.AddrPort
	Local    bool // on this node
	Backup   bool
	Accepts  bool // it has failed, and accepts connections
	Use      Use
}

func compareChoices(a, b Choice) int {
	return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Use, b.Use))
}

// addChoices notes what became of the endpoints.
func (c *candidates) addChoices(list []Choice, protocol state.Protocol, family state.Family, cluster, near selection) []Choice {
	list = slices.Grow(list, len(c.list))
	for i := range c.list {
		e := &c.list[i]
		if e.flags&(ready|draining) == 0 {
			continue
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
		return LeftOut
	}
	return Idle
}

// sortChoices leaves one choice of each endpoint.
func sortChoices(list []Choice) []Choice {
	slices.SortFunc(list, compareChoices)
	return slices.CompactFunc(list, func(a, b Choice) bool { return a.At == b.At && a.Protocol == b.Protocol })
}
