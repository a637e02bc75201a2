package endpointhealth

import (
	"container/heap"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	// maxChecks is how many checks there are on a node. One namespace can have half of what others leave, one Service a
	// quarter of all.
	maxChecks          = 20_000
	maxChecksOfTenant  = maxChecks / 2
	maxChecksOfService = maxChecksOfTenant / 2
	// maxAsking is how many endpoints are being asked: each is a flow in the table of connections. One namespace can have
	// half of them.
	maxAsking         = 512
	maxAskingOfTenant = maxAsking / 2
)

// targetOf returns who is asked about an endpoint of a Service port; false: nobody, so the endpoint is good.
func targetOf(c *state.HealthCheck, protocol state.Protocol, at netip.AddrPort) (t Target, ok bool) {
	if c == nil || c.Kind == state.CheckOff {
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
	// reached: the endpoint has answered this node at some time, well or badly.
	reached bool
	down    bool
	since   time.Time // when it began to fail
	fault   Fault     // of the latest bad answer
	why     string
	rises   uint8 // good answers in a row
	falls   uint8 // bad ones
	asking  bool
	booked  bool // next is its turn
	ready   bool // its time has come, and it waits for the rate
	next    time.Time
	index   int // in the heap; -1 while it is asked or ready
}

// asked is what a Service asks for.
type asked struct {
	check   state.HealthCheck
	targets []Target // sorted
	left    int      // of the targets, those without room
}

// checker decides which endpoints fail the checks of their Services. Its methods may be called from one goroutine at a time. Times must not go back.
type checker struct {
	jitter   func() float64 // a number from 0 to 1; it spreads questions over time
	cost     func(state.CheckKind) time.Duration
	rates    *rates
	services map[state.Name]*asked
	checks   map[key]*check
	turns    map[place]*turn
	waiting  checkQueue
	ready    state.Turns[*check]            // those whose time has come
	ofTenant map[string]int                 // checks
	asking   map[string]int                 // by namespace
	running  int                            // the sum of asking
	hungry   map[string]map[string]struct{} // namespaces and names of the Services with targets without room
	changed  map[state.Name]struct{}
	failing  int
	fed      map[state.Name]struct{} // Services that find room for more checks
	notes    []CheckNote
}

// newChecker returns a checker without checks.
func newChecker(jitter func() float64, cost func(state.CheckKind) time.Duration, r *rates) *checker {
	return &checker{
		jitter: jitter, cost: cost, rates: r, services: map[state.Name]*asked{}, checks: map[key]*check{}, turns: map[place]*turn{},
		ofTenant: map[string]int{}, asking: map[string]int{}, hungry: map[string]map[string]struct{}{}, changed: map[state.Name]struct{}{},
		ready: state.NewTurns[*check](), fed: map[state.Name]struct{}{},
	}
}

// Has reports whether a Service has checks.
func (c *checker) Has(name state.Name) bool { return c.services[name] != nil }

// Set records which endpoints of a Service are to be checked; no targets: none. It returns how many of them find no room.
func (c *checker) Set(name state.Name, want *state.HealthCheck, targets []Target, now time.Time) (left int) {
	slices.SortFunc(targets, Target.Compare)
	targets = slices.Compact(targets)
	was := c.services[name]
	if was != nil && was.left == 0 && len(targets) > 0 && was.check == *want && slices.Equal(was.targets, targets) {
		return 0
	}
	is := &asked{targets: targets}
	if len(targets) > 0 {
		is.check = *want
	}
	if was == nil {
		was = &asked{}
	}
	c.exchange(name, was, is, now)
	c.remember(name, is)
	return is.left
}

// exchange has a Service join the checks that are new to it, and leave those that it does not want any more. Those that stay
// join before the old ones leave, so that no check ends and begins.
func (c *checker) exchange(name state.Name, was, is *asked, now time.Time) {
	gone, come := was.targets, is.targets
	if was.check == is.check && was.left == 0 {
		gone, come = differ(was.targets, is.targets)
	}
	room := maxChecksOfService - (len(is.targets) - len(come))
	for i, t := range come {
		if i >= room || !c.join(name, key{place{name.Namespace, t}, is.check}, now) {
			is.left++
		}
	}
	for _, t := range gone {
		if _, stays := slices.BinarySearchFunc(is.targets, t, Target.Compare); !stays || was.check != is.check {
			c.leave(name, key{place{name.Namespace, t}, was.check})
		}
	}
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

func (c *checker) remember(name state.Name, is *asked) {
	c.services[name] = is
	if len(is.targets) == 0 {
		delete(c.services, name)
	}
	c.starve(name, is.left > 0)
}

// starve notes whether a Service has targets without room.
func (c *checker) starve(name state.Name, hungry bool) {
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

// starves reports whether a Service has targets without room.
func (c *checker) starves(name state.Name) bool {
	_, hungry := c.hungry[name.Namespace][name.Name]
	return hungry
}

// feed has one Service planned again that finds room for one check more.
func (c *checker) feed() {
	for namespace, names := range c.hungry {
		if c.full(namespace) {
			continue
		}
		for name := range names {
			c.fed[state.Name{Namespace: namespace, Name: name}] = struct{}{}
			return
		}
	}
}

// full reports whether a namespace can have no more checks.
func (c *checker) full(namespace string) bool {
	own := c.ofTenant[namespace]
	return own >= shareOf(maxChecks, len(c.checks)-own, maxChecks/maxChecksOfTenant)
}

// shareOf is how much of a room one namespace can have: a part of what others leave. So a few greedy ones do not fill it.
func shareOf(room, others, part int) int { return (room - others) / part }

// join makes a Service a user of a check; false: there is no room.
func (c *checker) join(name state.Name, k key, now time.Time) bool {
	is := c.checks[k]
	if is == nil {
		if c.full(k.namespace) {
			return false
		}
		is = &check{key: k, users: map[state.Name]struct{}{}}
		is.next = now.Add(time.Duration(c.jitter() * float64(k.check.Interval)))
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

func (c *checker) leave(name state.Name, k key) {
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
	switch {
	case is.asking:
		c.ended(is)
	case !is.ready:
		heap.Remove(&c.waiting, is.index)
	}
	c.feed()
}

// of returns the check of an endpoint that a Service asks for; nil: there is none.
func (c *checker) of(name state.Name, want *state.HealthCheck, t Target) *check {
	return c.checks[key{place{name.Namespace, t}, *want}]
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

// turn is how the checks of one endpoint share the times at which it is asked.
type turn struct {
	checks int
	asked  time.Time // the latest time
	booked time.Time // the latest time at which a check is to ask
}

// book takes the next free turn. Those of checks that have ended since are free again.
func (c *checker) book(t *turn, interval time.Duration, now time.Time) time.Time {
	if free := t.booked.Add(interval); t.booked.IsZero() || !now.Before(free) {
		t.booked = now
		return now
	}
	t.booked = t.booked.Add(c.spread(interval))
	if last := now.Add(time.Duration(t.checks) * c.spread(interval)); last.Before(t.booked) {
		t.booked = last
	}
	return t.booked
}

// touch has the Services of a check look at their endpoints again.
func (c *checker) touch(is *check) {
	for name := range is.users {
		c.changed[name] = struct{}{}
	}
}

// spread lengthens a pause by up to a tenth, so that nodes and endpoints do not ask at the same time.
func (c *checker) spread(pause time.Duration) time.Duration {
	return pause + time.Duration(c.jitter()*float64(pause)/10)
}

func (c *checker) ended(is *check) {
	decrement(c.asking, is.namespace)
	c.running--
}

// Answered records the end of a question.
func (c *checker) Answered(q checkQuestion, a Answer, now time.Time) {
	is := q.of
	if c.checks[is.key] != is {
		return // nobody wants it
	}
	is.asking = false
	c.ended(is)
	if is.next.Before(now) {
		is.next = now
	}
	heap.Push(&c.waiting, is)
	if (a.Connected || a.Fault.definite()) && !is.reached {
		is.reached = true
		c.touch(is) // silence of others is worth more now
	}
	if a.Good() {
		c.good(is, now)
	} else {
		c.bad(is, a, now)
	}
}

func (c *checker) good(is *check, now time.Time) {
	is.falls = 0
	if is.rises < is.check.Rise {
		is.rises++
	}
	if is.down && (is.rises >= is.check.Rise || !is.passed) {
		c.turn(is, false, now)
	}
	is.passed = true
}

func (c *checker) bad(is *check, a Answer, now time.Time) {
	if is.down && is.fault.definite() != a.Fault.definite() {
		c.touch(is)
	}
	is.rises, is.fault, is.why = 0, a.Fault, a.Why
	if is.falls < is.check.Fall {
		is.falls++
	}
	if !is.down && (is.falls >= is.check.Fall || !is.passed) {
		c.turn(is, true, now)
	}
}

// turn makes an endpoint fail, or pass again.
func (c *checker) turn(is *check, down bool, now time.Time) {
	is.down, is.since = down, now
	c.failing += toInt(down) - toInt(!down)
	c.touch(is)
	n := CheckNote{
		Failing: down, At: now, Target: is.target, Kind: is.check.Kind,
		Services: slices.SortedFunc(maps.Keys(is.users), state.Name.Compare),
	}
	if down {
		n.Why = is.why
	}
	c.notes = append(c.notes, n)
}

// checkQueue is a heap of checks by the time at which they are asked next.
type checkQueue []*check

func (q checkQueue) Len() int           { return len(q) }
func (q checkQueue) Less(i, j int) bool { return q[i].next.Before(q[j].next) }
func (q checkQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *checkQueue) Push(x any) {
	is := x.(*check)
	is.index = len(*q)
	*q = append(*q, is)
}

// Pop is for package heap.
func (q *checkQueue) Pop() any {
	last := len(*q) - 1
	is := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	is.index = -1
	return is
}

// restore records that an endpoint failed the check of a Service before this process started. Its next check is due at once.
func (c *checker) restore(name state.Name, want *state.HealthCheck, t Target, f *state.Failure, now time.Time) {
	is := c.of(name, want, t)
	if is == nil || is.passed || is.down || is.asking || is.ready {
		return
	}
	is.passed, is.reached, is.down, is.since, is.falls = true, true, true, f.Since, want.Fall
	is.fault, is.why = NoAnswer, "it failed before this process started"
	if f.Sure {
		is.fault = OtherFault
	}
	c.failing++
	is.next, is.booked = now, true
	heap.Fix(&c.waiting, is.index)
	c.touch(is)
}
