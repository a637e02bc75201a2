package checks

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options configure a Checker or a Detector.
type Options struct {
	Jitter  func() float64                      // a number from 0 to 1; it spreads questions over time
	Cost    func(state.CheckKind) time.Duration // of a question, in processor time
	Rates   *schedule.Rates                     // of such costs
	Changed func(state.Name)                    // what is known of the endpoints of the Service
	Note    func(Note)

	// Doubt is for a Detector: it is called with the node of an endpoint that gave clients no answer, and again when it gives no
	// answer to the first question either (asked).
	Doubt func(node string, asked bool, now time.Time)

	// The others are for a Checker.

	// Max is how many checks there are on the node. One Service can have a quarter of all, and one namespace a part of what others
	// leave: half of it with 2 Parts, all of it with 1.
	Max, Parts int
	Once       bool // who has passed is not asked again
}

// maxAsking is how many endpoints are being asked: each is a flow in the table of connections.
const maxAsking = 512

// Checker decides which endpoints fail the checks of their Services. Its methods may be called from one goroutine at a time.
// Times must not go back.
type Checker struct {
	Options
	services  map[state.Name]map[*Check]bool
	endpoints map[place]*endpoint
	line      schedule.Line[*endpoint]
	room      *schedule.Room      // for checks
	hungry    map[state.Name]bool // Services with targets without room
	freed     int                 // checks that have ended since the last call of Fed
	failing   int
}

// place is a target as one namespace has it.
type place struct {
	namespace string
	target    probe.Target
}

// New returns a Checker without checks.
func New(o Options) *Checker {
	cost := func(e *endpoint) time.Duration {
		is, _ := e.next()
		return o.Cost(is.asks.Kind)
	}
	return &Checker{
		Options: o, services: map[state.Name]map[*Check]bool{}, endpoints: map[place]*endpoint{}, hungry: map[state.Name]bool{},
		room: schedule.NewRoom(o.Max, o.Parts), line: schedule.NewLine(schedule.NewRoom(maxAsking, o.Parts), o.Rates, cost),
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
func (c *Checker) Counts() (all, failing int) {
	all, _ = c.room.Used("")
	return all, c.failing
}

// Set records which endpoints of a Service are to be checked. It returns the check of each target, and how many have none, because
// there is no room. The zero value of a target has none either.
func (c *Checker) Set(name state.Name, want *state.HealthCheck, targets []probe.Target, now time.Time) (list []*Check, left int) {
	was, is := c.services[name], map[*Check]bool{}
	list = make([]*Check, len(targets))
	delete(c.hungry, name)
	var waiting []int
	for i, t := range targets { // before others leave, so that a check that stays neither ends nor begins
		if t == (probe.Target{}) {
			continue
		}
		if list[i] = c.use(place{name.Namespace, t}, want, is, now); list[i] == nil {
			waiting = append(waiting, i)
		}
	}
	for k := range was {
		if !is[k] {
			c.leave(name, k)
		}
	}
	for _, i := range waiting { // others have made room, perhaps
		if list[i] = c.use(place{name.Namespace, targets[i]}, want, is, now); list[i] == nil {
			left++
			c.hungry[name] = c.hungry[name] || len(is) < c.Max/4
		}
	}
	if !c.hungry[name] {
		delete(c.hungry, name)
	}
	for k := range is {
		k.users[name] = struct{}{}
	}
	if c.services[name] = is; len(is) == 0 {
		delete(c.services, name)
	}
	return list, left
}

// use returns the check of a target for a Service, which has some already; nil: there is no room.
func (c *Checker) use(at place, want *state.HealthCheck, is map[*Check]bool, now time.Time) *Check {
	k := c.find(at, want)
	switch {
	case !is[k] && len(is) == c.Max/4, k == nil && !c.room.Take(at.namespace):
		return nil
	case k == nil:
		k = c.begin(at, want, now)
	}
	is[k] = true
	return k
}

// find returns the check of a target; nil: there is none.
func (c *Checker) find(at place, want *state.HealthCheck) *Check {
	if e := c.endpoints[at]; e != nil {
		for _, k := range e.checks {
			if k.asks == *want {
				return k
			}
		}
	}
	return nil
}

// begin adds a check, which takes turns with the others of its endpoint.
func (c *Checker) begin(at place, want *state.HealthCheck, now time.Time) *Check {
	e := c.endpoints[at]
	if e == nil {
		e = &endpoint{place: at}
		e.due.Value = e
		c.endpoints[at] = e
	}
	k := &Check{asks: *want, of: e, users: map[state.Name]struct{}{}}
	k.next = now.Add(time.Duration(c.Jitter() * float64(want.Interval)))
	e.checks = append(e.checks, k)
	c.wait(e)
	return k
}

// leave notes that a Service does not use a check any more.
func (c *Checker) leave(name state.Name, k *Check) {
	if delete(k.users, name); len(k.users) > 0 {
		return
	}
	if k.Down {
		c.failing--
	}
	c.room.Leave(name.Namespace)
	c.freed++
	e := k.of
	if e.checks = slices.DeleteFunc(e.checks, func(o *Check) bool { return o == k }); len(e.checks) > 0 {
		c.wait(e)
		return
	}
	e.due.Leave()
	delete(c.endpoints, e.place)
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

// Record is what the answers of an endpoint to one question say.
type Record struct {
	Passed bool // at some time
	// Reached: the endpoint has answered this node at some time, well or badly.
	Reached bool
	Down    bool
	Since   time.Time   // when it began to fail
	Fault   probe.Fault // of the latest bad answer
	Why     string
	Rises   uint8 // good answers in a row
	Falls   uint8 // bad ones
}

// Hear counts an answer, and reports whether it makes an endpoint fail, or good again: one of many in a row, or before the endpoint has
// passed, any one.
func (r *Record) Hear(a probe.Answer, rise, fall uint8) (turns bool) {
	if !a.Good() {
		r.Rises, r.Falls, r.Fault, r.Why = 0, min(r.Falls+1, fall), a.Fault, a.Why
		return !r.Down && (r.Falls == fall || !r.Passed)
	}
	r.Falls, r.Rises = 0, min(r.Rises+1, rise)
	turns = r.Down && (r.Rises == rise || !r.Passed)
	r.Passed = true
	return turns
}

// Restored is the record of an endpoint that failed before this process started.
func Restored(f *state.Failure, fall uint8) Record {
	r := Record{Passed: true, Reached: true, Down: true, Since: f.Since, Fault: probe.NoAnswer, Falls: fall}
	if f.Sure {
		r.Fault = probe.Refused
	}
	return r
}

// Check is one question to one endpoint, again and again.
type Check struct {
	Record
	asks  state.HealthCheck
	of    *endpoint
	users map[state.Name]struct{}
	next  time.Time // when it is to be asked, if the other checks of the endpoint allow it
}

// endpoint is who is asked. The checks that a namespace has of it take turns.
type endpoint struct {
	place
	checks []*Check
	asked  time.Time                 // the last time
	due    schedule.Entry[*endpoint] // it waits unless it is being asked
}

// next returns the check whose turn it is, and when it may be asked.
func (e *endpoint) next() (first *Check, at time.Time) {
	first = e.checks[0]
	shortest := first.asks.Interval
	for _, k := range e.checks[1:] {
		shortest = min(shortest, k.asks.Interval)
		if k.next.Before(first.next) {
			first = k
		}
	}
	if at = e.asked.Add(shortest); e.asked.IsZero() || at.Before(first.next) {
		at = first.next
	}
	return first, at
}

// wait has an endpoint wait for the turn of its next check.
func (c *Checker) wait(e *endpoint) {
	_, at := e.next()
	c.line.Put(&e.due, e.namespace, at)
}

// Question is the question of a check or of a suspicion. If it has Doubts, by namespace, it is for witnesses instead: API servers,
// and endpoints on other nodes.
type Question struct {
	probe.Question
	Suspect *Suspect // nil: it is that of a check
	Doubts  map[string]Doubts
	check   *Check
}

// Due returns the questions whose time has come, as many as the rates allow. The caller asks each of them, and reports the end
// with Answered.
func (c *Checker) Due(now time.Time) (list []Question) {
	due := c.line.Due(now)
	list = make([]Question, 0, len(due))
	for _, e := range due {
		k, _ := e.next()
		// Up to a tenth more, so that nodes and endpoints do not ask at the same time.
		e.asked, k.next = now, now.Add(k.asks.Interval+time.Duration(c.Jitter()*float64(k.asks.Interval)/10))
		list = append(list, Question{Question: probe.Question{Target: e.target, Check: k.asks}, check: k})
	}
	return list
}

// Answered records the end of a question.
func (c *Checker) Answered(q Question, a probe.Answer, now time.Time) {
	k, e := q.check, q.check.of
	if c.line.Ended(&e.due); len(e.checks) == 0 {
		return // nobody wants it
	}
	if !c.Once || !a.Good() {
		c.wait(e)
	}
	if len(k.users) == 0 || a.Fault == probe.OtherFault {
		return // only other checks of the endpoint are left, or the question could not be asked
	}
	if (a.Connected || a.Fault.Definite()) && !k.Reached {
		k.Reached = true
		c.touch(k) // silence of others is worth more now
	}
	before := k.Fault
	if k.Hear(a, k.asks.Rise, k.asks.Fall) {
		c.turn(k, !k.Down, now)
	} else if k.Down && k.Fault != before {
		c.touch(k)
	}
}

// turn makes an endpoint fail, or pass again.
func (c *Checker) turn(k *Check, down bool, now time.Time) {
	kind := CheckPasses
	if k.Down, k.Since = down, now; down {
		kind = CheckFails
		c.failing++
	} else {
		c.failing--
	}
	c.touch(k)
	c.Note(Note{
		Kind: kind, At: now, Question: &probe.Question{Target: k.of.target, Check: k.asks}, Why: k.Why,
		Services: slices.SortedFunc(maps.Keys(k.users), state.Name.Compare),
	})
}

// touch tells the Services of a check that something has changed.
func (c *Checker) touch(k *Check) {
	for name := range k.users {
		c.Changed(name)
	}
}

// Restore records that an endpoint failed the check before this process started.
func (c *Checker) Restore(k *Check, f *state.Failure, now time.Time) {
	r := Restored(f, k.asks.Fall)
	r.Why = "it failed before this process started"
	c.hand(k, r, now)
}

// Inherit has a check that takes the place of another one of the same endpoint begin with what that has found out. If the endpoint
// failed, the first answer decides.
func (c *Checker) Inherit(k, from *Check, now time.Time) {
	r := from.Record
	r.Passed, r.Rises, r.Falls = r.Passed && !r.Down, 0, 0
	c.hand(k, r, now)
}

// hand hands a record to a check that has none. If the endpoint failed, it is asked at once.
func (c *Checker) hand(k *Check, r Record, now time.Time) {
	if k.Passed || k.Down {
		return
	}
	r.Reached = r.Reached || k.Reached
	if k.Record = r; r.Down {
		k.next = now
		c.failing++
		c.wait(k.of)
	}
	c.touch(k)
}
