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

// Purpose is why an endpoint is asked.
type Purpose uint8

// The purposes.
const (
	Look      Purpose = iota // does it answer this node at all? Who has is not asked again
	Active                   // a Service asks for a check
	Suspicion                // the kernel noticed something
	purposes
)

// Terms are the limits of one purpose.
type Terms struct {
	schedule.Lane
	Room *schedule.Room                      // for checks; one Service can have a quarter of it
	Cost func(state.CheckKind) time.Duration // of a question, in processor time
}

// AllTerms are those of each purpose.
type AllTerms [purposes]*Terms

// Options configure a Checker.
type Options struct {
	Terms   AllTerms
	Jitter  func() float64   // a number from 0 to 1; it spreads questions over time
	Changed func(state.Name) // what is known of the endpoints of the Service
	Note    func(Note)
	// Doubt is called with the node of an endpoint that gave clients no answer, and again when it gives no answer to the first
	// question either (asked). Reaches reports whether no network policy keeps this node away from an endpoint.
	Doubt   func(node string, asked bool, now time.Time)
	Reaches func(*Suspect) bool
}

// Checker decides who is asked when, counts the answers, and finds out who answers. A check lives like this, whatever its purpose:
//
//	add --> wait --> Due --> (the caller asks) --> Answered --> leave
//	         ^                                        |
//	         +--- after the interval, or a pause -----+--> Hear: fall bad answers in a row make it fail, rise good ones make it good
//
// What turns means differs: an active check changes its pool (turn), the Detector judges a suspicion, and a look only has to pass once. Its
// methods may be called from one goroutine at a time. Times must not go back.
type Checker struct {
	Options
	endpoints map[place]*endpoint // but for those of suspicions, which nobody shares
	line      schedule.Line[*endpoint]
	hungry    map[state.Name]bool // Services with targets without room
	freed     int                 // active checks that have ended since the last call of Fed
	failing   int                 // active checks
	judge     func(s *Suspect, doubted, turns bool, now time.Time)
}

// place is a target as one namespace has it.
type place struct {
	namespace string
	target    probe.Target
	purpose   Purpose
}

// Check is one question to one endpoint, again and again.
type Check struct {
	Record
	asks    state.HealthCheck
	of      *endpoint
	users   map[state.Name]struct{}
	next    time.Time // when it is to be asked, if the other checks of the endpoint allow it
	suspect *Suspect  // what else is known, if it is a suspicion
}

// endpoint is who is asked. The checks that a namespace has of it take turns.
type endpoint struct {
	place
	checks []*Check
	asked  time.Time                 // the last time; of a suspicion: never, because it says itself when
	due    schedule.Entry[*endpoint] // it waits unless it is being asked, or rests
}

// Record is what the answers of an endpoint to one question say.
type Record struct {
	Passed  bool // at some time
	Reached bool // the endpoint has answered this node at some time, well or badly
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
	r.Reached = r.Reached || a.Connected || a.Fault.Definite()
	if !a.Good() {
		r.Rises, r.Falls, r.Fault, r.Why = 0, min(r.Falls+1, fall), a.Fault, a.Why
		return !r.Down && (r.Falls == fall || !r.Passed)
	}
	r.Falls, r.Rises = 0, min(r.Rises+1, rise)
	turns = r.Down && (r.Rises == rise || !r.Passed)
	r.Passed = true
	return turns
}

// New returns a Checker that asks nobody.
func New(o Options) *Checker {
	return &Checker{
		Options: o, endpoints: map[place]*endpoint{}, hungry: map[state.Name]bool{},
		line: schedule.NewLine(func(e *endpoint) time.Duration {
			is, _ := e.next()
			return o.Terms[e.purpose].Cost(is.asks.Kind)
		}),
	}
}

// Question is the next one of a check. If it has Doubts, by namespace, it is for witnesses instead: API servers, and endpoints on
// other nodes.
type Question struct {
	probe.Question
	Purpose Purpose
	Suspect *Suspect // nil: it is not under suspicion
	Doubts  map[string]Doubts
	check   *Check
}

// Due returns the questions whose time has come, as many as the rates allow. The caller asks each of them, and reports the end
// with Answered.
func (c *Checker) Due(now time.Time) []Question {
	due := c.line.Due(now)
	list := make([]Question, 0, len(due))
	for _, e := range due {
		k, _ := e.next()
		if e.purpose != Suspicion {
			// Up to a tenth more, so that nodes and endpoints do not ask at the same time.
			e.asked, k.next = now, now.Add(k.asks.Interval+time.Duration(c.Jitter()*float64(k.asks.Interval)/10))
		}
		list = append(list, Question{probe.Question{Target: e.target, Check: k.asks}, e.purpose, k.suspect, nil, k})
	}
	return list
}

// Answered records the end of a question.
func (c *Checker) Answered(q Question, a probe.Answer, now time.Time) {
	k, e := q.check, q.check.of
	if c.line.Ended(&e.due); len(e.checks) == 0 {
		return // nobody wants it
	}
	switch {
	case len(k.users) == 0, k.rests(): // only other checks of the endpoint are left, or nothing is
	case a.Fault != probe.OtherFault:
		c.hear(k, a, now)
	case k.suspect != nil: // it could not be asked, which decides nothing
		k.next = now.Add(c.spread(firstPause))
	}
	c.wait(e)
}

// hear counts an answer, and does what follows from it.
func (c *Checker) hear(k *Check, a probe.Answer, now time.Time) {
	before := k.Record
	switch turns := k.Hear(a, k.asks.Rise, k.asks.Fall); {
	case k.of.purpose == Look: // whether it has passed is all
	case k.suspect != nil:
		k.Fault = a.Fault // also of a good answer
		c.judge(k.suspect, !before.Down && before.Falls > 0, turns, now)
	case turns:
		c.turn(k, now)
	case k.Down && k.Fault != before.Fault, k.Reached != before.Reached: // silence of others is worth more now
		c.touch(k)
	}
}

// spread shortens a pause by up to a fifth, so that nodes and endpoints do not ask at the same time.
func (c *Checker) spread(pause time.Duration) time.Duration {
	return pause - time.Duration(c.Jitter()*float64(pause)/5)
}

// turn makes an endpoint fail its active check, or pass again.
func (c *Checker) turn(k *Check, now time.Time) {
	kind := CheckPasses
	if k.Down, k.Since = !k.Down, now; k.Down {
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

// rests reports whether there is nothing to ask: a look has passed, or a suspicion has ended.
func (k *Check) rests() bool {
	return k.of.purpose == Look && k.Passed || k.suspect != nil && k.suspect.calm
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
	if k, at := e.next(); k.rests() {
		e.due.Leave()
	} else {
		c.line.Put(&e.due, &c.Terms[e.purpose].Lane, e.namespace, at)
	}
}

// add begins a check, which takes turns with the others of its endpoint; false: there is no room.
func (c *Checker) add(k *Check, at place) bool {
	if !c.Terms[at.purpose].Room.Take(at.namespace) {
		return false
	}
	e := c.endpoints[at]
	if e == nil {
		e = &endpoint{place: at}
		if e.due.Value = e; at.purpose != Suspicion {
			c.endpoints[at] = e
		}
	}
	k.of, k.users = e, map[state.Name]struct{}{}
	e.checks = append(e.checks, k)
	c.wait(e)
	return true
}

// leave notes that a Service does not use a check any more.
func (c *Checker) leave(name state.Name, k *Check) {
	if _, uses := k.users[name]; !uses {
		return
	}
	if delete(k.users, name); len(k.users) > 0 {
		return
	}
	e := k.of
	c.Terms[e.purpose].Room.Leave(name.Namespace)
	if e.purpose == Active {
		c.freed++
		if k.Down {
			c.failing--
		}
	}
	if e.checks = slices.DeleteFunc(e.checks, func(o *Check) bool { return o == k }); len(e.checks) > 0 {
		c.wait(e)
		return
	}
	e.due.Leave()
	delete(c.endpoints, e.place)
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

// Set records which targets of a Service are to be asked for a purpose, and which checks it had. It returns the check of each target,
// and how many have none, because there is no room. The zero value of a target has none either.
func (c *Checker) Set(
	name state.Name, purpose Purpose, want *state.HealthCheck, targets []probe.Target, was []*Check, now time.Time,
) (list []*Check, left int) {
	is := map[*Check]bool{}
	list = make([]*Check, len(targets))
	use := func(i int) bool {
		at := place{name.Namespace, targets[i], purpose}
		list[i] = c.use(at, want, is, now)
		return list[i] != nil
	}
	var waiting []int
	for i, t := range targets { // before others leave, so that a check that stays neither ends nor begins
		if t != (probe.Target{}) && !use(i) {
			waiting = append(waiting, i)
		}
	}
	for _, k := range was {
		if k != nil && !is[k] {
			c.leave(name, k)
		}
	}
	hungry := false
	for _, i := range waiting {
		if !use(i) { // nobody has made room
			left++
			hungry = hungry || !c.full(purpose, is)
		}
	}
	if purpose == Active {
		if delete(c.hungry, name); hungry {
			c.hungry[name] = true
		}
	}
	for k := range is {
		k.users[name] = struct{}{}
	}
	return list, left
}

// full reports whether a Service has as many checks as it can have.
func (c *Checker) full(purpose Purpose, is map[*Check]bool) bool {
	return len(is) == c.Terms[purpose].Room.Size/4
}

// use returns the check of a target for a Service, which has some already; nil: there is no room.
func (c *Checker) use(at place, want *state.HealthCheck, is map[*Check]bool, now time.Time) *Check {
	k := c.find(at, want)
	if !is[k] && c.full(at.purpose, is) {
		return nil
	}
	if k == nil {
		if k = (&Check{asks: *want, next: now}); at.purpose == Active {
			k.next = now.Add(time.Duration(c.Jitter() * float64(want.Interval)))
		}
		if !c.add(k, at) {
			return nil
		}
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

// Counts returns how many active checks there are, and how many of them fail.
func (c *Checker) Counts() (all, failing int) {
	all, _ = c.Terms[Active].Room.Used("")
	return all, c.failing
}

// Starves reports whether a Service has targets without room.
func (c *Checker) Starves(name state.Name) bool { return c.hungry[name] }

// Fed returns Services that find room for one check more each since the last call. Set of such a Service takes it.
func (c *Checker) Fed() (list []state.Name) {
	for name := range c.hungry {
		if c.freed == 0 {
			break
		}
		if !c.Terms[Active].Room.Full(name.Namespace) {
			list = append(list, name)
			c.freed--
		}
	}
	c.freed = 0
	return list
}

// Restore records that an endpoint failed before this process started.
func (c *Checker) Restore(k *Check, f *state.Failure, now time.Time) {
	r := Record{
		Passed: true, Reached: true, Down: true, Since: f.Since, Fault: probe.NoAnswer, Falls: k.asks.Fall,
		Why: "it failed before this process started",
	}
	if f.Sure {
		r.Fault = probe.Refused
	}
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
		if k.next = now; k.of.purpose == Active {
			c.failing++
		}
		c.wait(k.of)
	}
	c.touch(k)
}
