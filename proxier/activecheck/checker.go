package activecheck

import (
	"cmp"
	"container/heap"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	// maxChecks is how many checks there are on a node. One namespace can have half of them.
	maxChecks         = 20_000
	maxChecksOfTenant = maxChecks / 2
	// maxAsking is how many endpoints are being asked. One namespace can have half of them.
	maxAsking         = 1024
	maxAskingOfTenant = maxAsking / 2
)

// Target is who is asked.
type Target struct {
	Protocol state.Protocol
	At       netip.AddrPort
}

// Compare orders targets by address, port and protocol.
func (t Target) Compare(o Target) int {
	return cmp.Or(t.At.Compare(o.At), cmp.Compare(t.Protocol, o.Protocol))
}

// TargetOf returns who is asked about an endpoint of a Service port; false: nobody, so the endpoint is good. Addresses of
// this node alone are not asked: who writes a Service could have the node ask its own programs, or the server of a cloud
// that knows its secrets.
func TargetOf(c *state.HealthCheck, protocol state.Protocol, at netip.AddrPort) (t Target, ok bool) {
	if c == nil || c.Kind == state.CheckOff || at.Addr().IsLoopback() || at.Addr().IsLinkLocalUnicast() {
		return t, false
	}
	if c.Port != 0 {
		at = netip.AddrPortFrom(at.Addr(), c.Port)
		if c.Kind != state.CheckDNS {
			protocol = state.TCP
		}
	}
	return Target{Protocol: protocol, At: at}, protocol == state.TCP || protocol == state.UDP && c.Kind == state.CheckDNS
}

// place is a target as one namespace has it.
type place struct {
	namespace string
	target    Target
}

// key identifies a check.
type key struct {
	place
	check state.HealthCheck
}

// check is one question to one endpoint, again and again.
type check struct {
	key
	users  map[state.Name]struct{}
	passed bool // at some time
	down   bool
	since  time.Time // when it began to fail
	why    string
	rises  uint8 // good answers in a row
	falls  uint8 // bad ones
	asking bool
	booked bool // next is its turn
	next   time.Time
	index  int // in the heap; -1 while it is asked
}

// service is what a Service asks for.
type service struct {
	check   state.HealthCheck
	targets []Target // sorted
	left    int      // of the targets, those without room
}

// Settings configure a Checker.
type Settings struct {
	// Jitter returns a number from 0 to 1. It spreads questions over time.
	Jitter func() float64
}

// Checker decides about endpoints. Its methods may be called from one goroutine at a time. Times must not go back.
type Checker struct {
	settings Settings
	services map[state.Name]*service
	checks   map[key]*check
	turns    map[place]*turn
	waiting  queue
	ofTenant map[string]int                 // checks
	asking   map[string]int                 // by namespace
	running  int                            // the sum of asking
	hungry   map[string]map[string]struct{} // namespaces and names of the Services with targets without room
	changed  map[state.Name]struct{}
	failing  int
	notes    []Note
}

// New returns a Checker without checks.
func New(s Settings) *Checker {
	return &Checker{
		settings: s, services: map[state.Name]*service{}, checks: map[key]*check{}, turns: map[place]*turn{},
		ofTenant: map[string]int{}, asking: map[string]int{}, hungry: map[string]map[string]struct{}{}, changed: map[state.Name]struct{}{},
	}
}

// Has reports whether a Service has checks.
func (c *Checker) Has(name state.Name) bool { return c.services[name] != nil }

// Set tells which endpoints of a Service are to be checked; no targets: none. It returns for how many there is no room.
func (c *Checker) Set(name state.Name, asked *state.HealthCheck, targets []Target, now time.Time) (left int) {
	slices.SortFunc(targets, Target.Compare)
	targets = slices.Compact(targets)
	was := c.services[name]
	if was != nil && was.left == 0 && len(targets) > 0 && was.check == *asked && slices.Equal(was.targets, targets) {
		return 0
	}
	is := &service{targets: targets}
	if len(targets) > 0 {
		is.check = *asked
	}
	if was == nil {
		was = &service{}
	}
	gone, come := was.targets, targets
	if was.check == is.check && was.left == 0 {
		gone, come = differ(was.targets, targets)
	}
	// Those that stay join before the old ones leave, so that no check ends and begins.
	for _, t := range come {
		if !c.join(name, key{place{name.Namespace, t}, is.check}, now) {
			is.left++
		}
	}
	for _, t := range gone {
		if _, stays := slices.BinarySearchFunc(targets, t, Target.Compare); !stays || was.check != is.check {
			c.leave(name, key{place{name.Namespace, t}, was.check})
		}
	}
	c.remember(name, is)
	return is.left
}

// differ lists what is in one of two sorted lists only.
func differ(a, b []Target) (onlyA, onlyB []Target) {
	for len(a) > 0 && len(b) > 0 {
		switch n := a[0].Compare(b[0]); {
		case n < 0:
			onlyA, a = append(onlyA, a[0]), a[1:]
		case n > 0:
			onlyB, b = append(onlyB, b[0]), b[1:]
		default:
			a, b = a[1:], b[1:]
		}
	}
	return append(onlyA, a...), append(onlyB, b...)
}

func (c *Checker) remember(name state.Name, is *service) {
	c.services[name] = is
	if len(is.targets) == 0 {
		delete(c.services, name)
	}
	c.starve(name, is.left > 0)
}

// starve notes whether a Service has targets without room.
func (c *Checker) starve(name state.Name, hungry bool) {
	of := c.hungry[name.Namespace]
	if of == nil {
		of = map[string]struct{}{}
		c.hungry[name.Namespace] = of
	}
	if delete(of, name.Name); hungry {
		of[name.Name] = struct{}{}
	}
	if len(of) == 0 {
		delete(c.hungry, name.Namespace)
	}
}

// feed has one Service planned again that finds room for one check more.
func (c *Checker) feed() {
	for namespace, names := range c.hungry {
		if c.ofTenant[namespace] >= maxChecksOfTenant {
			continue
		}
		for name := range names {
			c.changed[state.Name{Namespace: namespace, Name: name}] = struct{}{}
			return
		}
	}
}

// join makes a Service a user of a check; false: there is no room.
func (c *Checker) join(name state.Name, k key, now time.Time) bool {
	is := c.checks[k]
	if is == nil {
		if len(c.checks) >= maxChecks || c.ofTenant[k.namespace] >= maxChecksOfTenant {
			return false
		}
		is = &check{key: k, users: map[state.Name]struct{}{}}
		is.next = now.Add(time.Duration(c.settings.Jitter() * float64(k.check.Interval)))
		c.checks[k] = is
		c.ofTenant[k.namespace]++
		if c.turns[k.place] == nil {
			c.turns[k.place] = &turn{}
		}
		c.turns[k.place].checks++
		heap.Push(&c.waiting, is)
	}
	is.users[name] = struct{}{}
	return true
}

func (c *Checker) leave(name state.Name, k key) {
	is := c.checks[k]
	if is == nil {
		return // there was no room for it
	}
	if delete(is.users, name); len(is.users) > 0 {
		return
	}
	c.failing -= toInt(is.down)
	delete(c.checks, k)
	decrement(c.ofTenant, k.namespace)
	if c.turns[k.place].checks--; c.turns[k.place].checks == 0 {
		delete(c.turns, k.place)
	}
	if is.asking {
		c.ended(is)
	} else {
		heap.Remove(&c.waiting, is.index)
	}
	c.feed()
}

// Down reports whether an endpoint fails the check that a Service asks for.
func (c *Checker) Down(name state.Name, asked *state.HealthCheck, t Target) (down bool, since time.Time, why string) {
	is := c.checks[key{place{name.Namespace, t}, *asked}]
	if is == nil || !is.down {
		return false, since, ""
	}
	return true, is.since, is.why
}

func decrement(counts map[string]int, name string) {
	if counts[name]--; counts[name] == 0 {
		delete(counts, name)
	}
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
