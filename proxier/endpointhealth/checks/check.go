package checks

import (
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Check is one question to one endpoint, again and again, and what the answers say.
type Check struct {
	Passed bool // at some time
	// Reached: the endpoint has answered this node at some time, well or badly.
	Reached bool
	Down    bool
	Since   time.Time   // when it began to fail
	Fault   probe.Fault // of the latest bad answer
	Why     string

	asks  state.HealthCheck
	of    *endpoint
	users map[state.Name]struct{}
	rises uint8     // good answers in a row
	falls uint8     // bad ones
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

// Question is the question of a check.
type Question struct {
	probe.Question
	check *Check
}

// Due returns the questions whose time has come, as many as the rates allow. The caller asks each of them, and reports the end
// with Answered.
func (c *Checker) Due(now time.Time) (list []Question) {
	for _, e := range c.line.Due(now) {
		k, _ := e.next()
		// Up to a tenth more, so that nodes and endpoints do not ask at the same time.
		e.asked, k.next = now, now.Add(k.asks.Interval+time.Duration(c.Jitter()*float64(k.asks.Interval)/10))
		list = append(list, Question{probe.Question{Target: e.target, Check: k.asks}, k})
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
	if len(k.users) == 0 {
		return // only other checks of the endpoint are left
	}
	if (a.Connected || a.Fault.Definite()) && !k.Reached {
		k.Reached = true
		c.touch(k) // silence of others is worth more now
	}
	if a.Good() {
		c.good(k, now)
	} else {
		c.bad(k, a, now)
	}
}

func (c *Checker) good(k *Check, now time.Time) {
	k.falls = 0
	if k.rises < k.asks.Rise {
		k.rises++
	}
	if k.Down && (k.rises >= k.asks.Rise || !k.Passed) {
		c.turn(k, false, now)
	}
	k.Passed = true
}

func (c *Checker) bad(k *Check, a probe.Answer, now time.Time) {
	if k.Down && k.Fault.Definite() != a.Fault.Definite() {
		c.touch(k)
	}
	k.rises, k.Fault, k.Why = 0, a.Fault, a.Why
	if k.falls < k.asks.Fall {
		k.falls++
	}
	if !k.Down && (k.falls >= k.asks.Fall || !k.Passed) {
		c.turn(k, true, now)
	}
}

// Note is a change of an endpoint that is checked.
type Note struct {
	Failing  bool // otherwise it passes again
	At       time.Time
	Target   probe.Target
	Kind     state.CheckKind
	Why      string
	Services []state.Name // that ask for the check, sorted
}

// turn makes an endpoint fail, or pass again.
func (c *Checker) turn(k *Check, down bool, now time.Time) {
	if k.Down, k.Since = down, now; down {
		c.failing++
	} else {
		c.failing--
	}
	c.touch(k)
	c.Note(Note{
		Failing: down, At: now, Target: k.of.target, Kind: k.asks.Kind, Why: k.Why,
		Services: slices.SortedFunc(maps.Keys(k.users), state.Name.Compare),
	})
}

// touch has the Services of a check look at their endpoints again.
func (c *Checker) touch(k *Check) {
	for name := range k.users {
		c.Changed(name)
	}
}

// Restore records that an endpoint failed the check before this process started. Its next check is due at once.
func (c *Checker) Restore(k *Check, f *state.Failure, now time.Time) {
	if k.Passed || k.Down {
		return
	}
	k.Passed, k.Reached, k.Down, k.Since, k.Fault, k.Why = true, true, true, f.Since, probe.NoAnswer, "it failed before this process started"
	if f.Sure {
		k.Fault = probe.OtherFault
	}
	k.falls, k.next = k.asks.Fall, now
	c.failing++
	c.wait(k.of)
	c.touch(k)
}
