package activecheck

import (
	"container/heap"
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// turn is how the checks of one endpoint share the times at which it is asked.
type turn struct {
	checks int
	asked  time.Time // the latest time
	booked time.Time // the latest time at which a check is to ask
}

// later is when a check is tried again that found no room among those that are being asked.
const later = 200 * time.Millisecond

// Question asks an endpoint.
type Question struct {
	Target Target
	Check  state.HealthCheck
	of     *check
}

// Result is the end of a question.
type Result struct {
	Good  bool
	Fault Fault  // of a bad one
	Why   string // it is bad, in words
}

// Fault is the kind of a bad answer.
type Fault uint8

// The faults.
const (
	OtherFault Fault = iota
	NoAnswer         // within the timeout
	Refused
	Reset
	NoRoute
	Closed      // without an answer
	WrongAnswer // one that the check does not accept
)

func (f Fault) String() string {
	return [...]string{"other", "no answer", "refused", "reset", "no route", "closed", "wrong answer"}[f]
}

// Failure is a check that failed, as metrics count it.
type Failure struct {
	Kind  state.CheckKind
	Fault Fault
}

// Failures lists all there are.
func Failures() (list []Failure) {
	for kind := state.CheckTCP; kind <= state.CheckDNS; kind++ {
		for fault := OtherFault; fault <= WrongAnswer; fault++ {
			list = append(list, Failure{kind, fault})
		}
	}
	return list
}

// Next returns when Due has something to say; the zero time: never.
func (c *Checker) Next() (at time.Time) {
	if len(c.waiting) > 0 {
		at = c.waiting[0].next
	}
	return at
}

// Due returns the questions whose time has come. The caller asks each of them, and tells the end by Answered.
func (c *Checker) Due(now time.Time) (list []Question) {
	for len(c.waiting) > 0 && !now.Before(c.waiting[0].next) {
		is := c.waiting[0]
		if at := c.mayAsk(is, now); now.Before(at) {
			is.next = at
			heap.Fix(&c.waiting, 0)
			continue
		}
		heap.Pop(&c.waiting)
		is.asking, is.booked = true, false
		c.turns[is.place].asked = now
		c.asking[is.namespace]++
		c.running++
		is.next = now.Add(c.spread(is.check.Interval))
		list = append(list, Question{Target: is.target, Check: is.check, of: is})
	}
	return list
}

// mayAsk returns from when on a check may be asked.
func (c *Checker) mayAsk(is *check, now time.Time) time.Time {
	if c.running >= maxAsking || c.asking[is.namespace] >= maxAskingOfTenant {
		return now.Add(c.spread(later))
	}
	t := c.turns[is.place]
	switch {
	case !is.booked:
		is.booked = true
		return c.book(t, is.check.Interval, now)
	case !t.asked.IsZero() && now.Sub(t.asked) < is.check.Interval: // the turn before was late
		return t.asked.Add(c.spread(is.check.Interval))
	}
	return now
}

// book takes the next free turn. Those of checks that have ended since are free again.
func (c *Checker) book(t *turn, interval time.Duration, now time.Time) time.Time {
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

// spread lengthens a pause by up to a tenth, so that nodes and endpoints do not ask at the same time.
func (c *Checker) spread(pause time.Duration) time.Duration {
	return pause + time.Duration(c.settings.Jitter()*float64(pause)/10)
}

func (c *Checker) ended(is *check) {
	decrement(c.asking, is.namespace)
	c.running--
}

// Answered tells the end of a question.
func (c *Checker) Answered(q Question, r Result, now time.Time) {
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
	if r.Good {
		c.good(is, now)
	} else {
		c.bad(is, r.Why, now)
	}
}

func (c *Checker) good(is *check, now time.Time) {
	is.falls = 0
	if is.rises < is.check.Rise {
		is.rises++
	}
	if is.down && (is.rises >= is.check.Rise || !is.passed) {
		c.turn(is, false, now)
	}
	is.passed = true
}

func (c *Checker) bad(is *check, why string, now time.Time) {
	is.rises, is.why = 0, why
	if is.falls < is.check.Fall {
		is.falls++
	}
	if !is.down && (is.falls >= is.check.Fall || !is.passed) {
		c.turn(is, true, now)
	}
}

// turn makes an endpoint fail, or pass again.
func (c *Checker) turn(is *check, down bool, now time.Time) {
	is.down, is.since = down, now
	c.failing += toInt(down) - toInt(!down)
	users := slices.SortedFunc(maps.Keys(is.users), state.Name.Compare)
	for _, name := range users {
		c.changed[name] = struct{}{}
	}
	n := Note{Failing: down, At: now, Target: is.target, Kind: is.check.Kind, Services: users}
	if down {
		n.Why = is.why
	}
	c.notes = append(c.notes, n)
}

// queue is a heap of checks by the time at which they are asked next.
type queue []*check

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].next.Before(q[j].next) }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push is for package heap.
func (q *queue) Push(x any) {
	is := x.(*check)
	is.index = len(*q)
	*q = append(*q, is)
}

// Pop is for package heap.
func (q *queue) Pop() any {
	last := len(*q) - 1
	is := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	is.index = -1
	return is
}
