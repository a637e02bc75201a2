package checks

import (
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// State is what the answers of an endpoint to a check say.
type State struct {
	Passed bool // at some time
	// Reached: the endpoint has answered this node at some time, well or badly.
	Reached bool
	Down    bool
	Since   time.Time   // when it began to fail
	Fault   probe.Fault // of the latest bad answer
	Why     string
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

// Notes returns what happened since the last call.
func (c *Checker) Notes() []Note {
	notes := c.notes
	c.notes = nil
	return notes
}

// Changed returns the Services of which an endpoint fails or passes since the last call.
func (c *Checker) Changed() []state.Name { return state.TakeNames(c.changed) }

// touch has the Services of a check look at their endpoints again.
func (c *Checker) touch(is *check) {
	for name := range is.users {
		c.changed[name] = true
	}
}

// Answered records the end of a question.
func (c *Checker) Answered(q Question, a probe.Answer, now time.Time) {
	c.asking.Leave(q.endpoint.namespace)
	e, is := q.endpoint, q.check
	if c.endpoints[e.place] != e {
		return // nobody wants it
	}
	e.asking = false
	c.wait(e)
	if c.checks[is.key] != is {
		return // only other checks of the endpoint are left
	}
	if (a.Connected || a.Fault.Definite()) && !is.Reached {
		is.Reached = true
		c.touch(is) // silence of others is worth more now
	}
	if a.Good() {
		c.good(is, now)
	} else {
		c.bad(is, a, now)
	}
}

func (c *Checker) good(is *check, now time.Time) {
	is.falls = 0
	if is.rises < is.check.Rise {
		is.rises++
	}
	if is.Down && (is.rises >= is.check.Rise || !is.Passed) {
		c.turn(is, false, now)
	}
	is.Passed = true
}

func (c *Checker) bad(is *check, a probe.Answer, now time.Time) {
	if is.Down && is.Fault.Definite() != a.Fault.Definite() {
		c.touch(is)
	}
	is.rises, is.Fault, is.Why = 0, a.Fault, a.Why
	if is.falls < is.check.Fall {
		is.falls++
	}
	if !is.Down && (is.falls >= is.check.Fall || !is.Passed) {
		c.turn(is, true, now)
	}
}

// turn makes an endpoint fail, or pass again.
func (c *Checker) turn(is *check, down bool, now time.Time) {
	is.Down, is.Since = down, now
	n := Note{
		Failing: down, At: now, Target: is.target, Kind: is.check.Kind,
		Services: slices.SortedFunc(maps.Keys(is.users), state.Name.Compare),
	}
	if down {
		c.failing++
		n.Why = is.Why
	} else {
		c.failing--
	}
	c.touch(is)
	c.notes = append(c.notes, n)
}
