package checks

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options configure a Checker.
type Options struct {
	Jitter func() float64                      // a number from 0 to 1; it spreads questions over time
	Cost   func(state.CheckKind) time.Duration // of a question, in processor time
	Rates  *schedule.Rates                     // of such costs
}

const (
	// MaxChecks is how many checks there are on a node. One namespace can have half of what others leave, one Service a
	// quarter of all.
	MaxChecks          = 20_000
	maxChecksOfService = MaxChecks / 4
)

// Checker decides which endpoints fail the checks of their Services. Its methods may be called from one goroutine at a time.
// Times must not go back.
type Checker struct {
	Options
	services  map[state.Name]*wish
	checks    map[key]*check
	endpoints map[place]*endpoint
	waiting   map[string]*schedule.Queue[*endpoint] // by namespace
	room      *schedule.Room                        // for checks
	asking    *schedule.Room
	hungry    map[state.Name]bool // Services with targets without room
	freed     int                 // checks that have ended since the last call of Fed
	changed   map[state.Name]bool
	failing   int
	notes     []Note
}

// place is a target as one namespace has it.
type place struct {
	namespace string
	target    probe.Target
}

// key identifies a check.
type key struct {
	place
	check state.HealthCheck
}

// check is one question to one endpoint, again and again.
type check struct {
	key
	State
	users map[state.Name]struct{}
	rises uint8     // good answers in a row
	falls uint8     // bad ones
	next  time.Time // when it is to be asked, if the other checks of the endpoint allow it
}

// wish is what a Service asks for.
type wish struct {
	check   state.HealthCheck
	targets []probe.Target // sorted
}

// New returns a Checker without checks.
func New(o Options) *Checker {
	return &Checker{
		Options: o, services: map[state.Name]*wish{}, checks: map[key]*check{}, endpoints: map[place]*endpoint{},
		waiting: map[string]*schedule.Queue[*endpoint]{}, room: schedule.NewRoom(MaxChecks, 2), asking: schedule.NewRoom(maxAsking, 2),
		hungry: map[state.Name]bool{}, changed: map[state.Name]bool{},
	}
}

// TargetOf returns who is asked about an endpoint of a Service port; false: nobody, so the endpoint is good.
func TargetOf(c *state.HealthCheck, endpoint probe.Target) (t probe.Target, ok bool) {
	if c == nil || c.Kind == state.CheckOff {
		return t, false
	}
	if t = endpoint; c.Port != 0 {
		t.At = netip.AddrPortFrom(t.At.Addr(), c.Port)
		if c.Kind != state.CheckDNS {
			t.Protocol = state.TCP
		}
	}
	return t, t.Protocol == state.TCP || t.Protocol == state.UDP && c.Kind == state.CheckDNS
}

// Counts returns how many checks there are, and how many of them fail.
func (c *Checker) Counts() (all, failing int) { return len(c.checks), c.failing }

// Set records which endpoints of a Service are to be checked; no targets: none. It returns how many of them are not.
func (c *Checker) Set(name state.Name, want *state.HealthCheck, targets []probe.Target, now time.Time) (left int) {
	was, is := c.services[name], &wish{}
	if len(targets) > 0 {
		slices.SortFunc(targets, probe.Target.Compare)
		targets = slices.Compact(targets)
		left = max(0, len(targets)-maxChecksOfService)
		is = &wish{*want, slices.Clone(targets[:len(targets)-left])}
	}
	if was == nil {
		was = &wish{}
	}
	if !c.hungry[name] && was.check == is.check && slices.Equal(was.targets, is.targets) {
		return left
	}
	if c.services[name] = is; len(targets) == 0 {
		delete(c.services, name)
	}
	delete(c.hungry, name)
	for _, t := range is.targets { // before others leave, so that a check that stays neither ends nor begins
		if !c.join(name, key{place{name.Namespace, t}, is.check}, now) {
			left++
			c.hungry[name] = true
		}
	}
	for _, t := range was.targets {
		if _, stays := slices.BinarySearchFunc(is.targets, t, probe.Target.Compare); !stays || was.check != is.check {
			c.leave(name, key{place{name.Namespace, t}, was.check})
		}
	}
	return left
}

// Starves reports whether a Service has targets without room.
func (c *Checker) Starves(name state.Name) bool { return c.hungry[name] }

// Fed returns Services that find room for one check more each since the last call. Set of such a Service takes it.
func (c *Checker) Fed() (list []state.Name) {
	for name := range c.hungry {
		if c.freed == 0 {
			break
		}
		if !c.room.Full(name.Namespace) {
			list = append(list, name)
			c.freed--
		}
	}
	c.freed = 0
	return list
}

// join makes a Service a user of a check; false: there is no room.
func (c *Checker) join(name state.Name, k key, now time.Time) bool {
	is := c.checks[k]
	if is == nil {
		if !c.room.Take(k.namespace) {
			return false
		}
		is = &check{key: k, users: map[state.Name]struct{}{}}
		is.next = now.Add(time.Duration(c.Jitter() * float64(k.check.Interval)))
		c.checks[k] = is
		c.addTurn(is)
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
	if is.Down {
		c.failing--
	}
	delete(c.checks, k)
	c.removeTurn(is)
	c.room.Leave(k.namespace)
	c.freed++
}

// Of returns the state of the check of an endpoint that a Service asks for; nil: there is none.
func (c *Checker) Of(name state.Name, want *state.HealthCheck, t probe.Target) *State {
	if is := c.checks[key{place{name.Namespace, t}, *want}]; is != nil {
		return &is.State
	}
	return nil
}

// Restore records that an endpoint failed the check of a Service before this process started. Its next check is due at once.
func (c *Checker) Restore(name state.Name, want *state.HealthCheck, t probe.Target, f *state.Failure, now time.Time) {
	is := c.checks[key{place{name.Namespace, t}, *want}]
	if is == nil || is.Passed || is.Down {
		return
	}
	is.State = State{Passed: true, Reached: true, Down: true, Since: f.Since, Fault: probe.NoAnswer, Why: "it failed before this process started"}
	if f.Sure {
		is.Fault = probe.OtherFault
	}
	is.falls, is.next = want.Fall, now
	c.failing++
	c.wait(c.endpoints[is.place])
	c.touch(is)
}
