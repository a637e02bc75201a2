package checks

import (
	"maps"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
)

// maxAsking is how many endpoints are being asked: each is a flow in the table of connections. One namespace can have half
// of what others leave.
const maxAsking = 512

// endpoint is who is asked. The checks that a namespace has of it take turns.
type endpoint struct {
	place
	checks []*check
	asked  time.Time // the last time
	asking bool
	due    schedule.Entry[*endpoint] // it waits unless it is being asked
}

// next returns the check whose turn it is, and when it may be asked.
func (e *endpoint) next() (first *check, at time.Time) {
	first = e.checks[0]
	shortest := first.check.Interval
	for _, is := range e.checks[1:] {
		shortest = min(shortest, is.check.Interval)
		if is.next.Before(first.next) {
			first = is
		}
	}
	if at = e.asked.Add(shortest); e.asked.IsZero() || at.Before(first.next) {
		at = first.next
	}
	return first, at
}

// wait has an endpoint wait for the turn of its next check. Each namespace has a queue of its own.
func (c *Checker) wait(e *endpoint) {
	if e.asking {
		return
	}
	q := c.waiting[e.namespace]
	if q == nil {
		q = &schedule.Queue[*endpoint]{}
		c.waiting[e.namespace] = q
	}
	_, at := e.next()
	q.Put(&e.due, at)
}

// addTurn has a new check take turns with the others of its endpoint.
func (c *Checker) addTurn(is *check) {
	e := c.endpoints[is.place]
	if e == nil {
		e = &endpoint{place: is.place}
		e.due.Value = e
		c.endpoints[is.place] = e
	}
	e.checks = append(e.checks, is)
	c.wait(e)
}

func (c *Checker) removeTurn(is *check) {
	e := c.endpoints[is.place]
	e.checks = slices.DeleteFunc(e.checks, func(o *check) bool { return o == is })
	if len(e.checks) > 0 {
		c.wait(e)
		return
	}
	e.due.Leave()
	delete(c.endpoints, is.place)
}

// Question is the question of a check.
type Question struct {
	probe.Question
	check    *check
	endpoint *endpoint
}

// Due returns the questions whose time has come, as many as the rates allow. The caller asks each of them, and
// reports the end with Answered. What the rates do not allow is late. Namespaces have turns.
func (c *Checker) Due(now time.Time) (list []Question) {
	namespaces := slices.Collect(maps.Keys(c.waiting)) // in no order: none is always the first
	for len(namespaces) > 0 {
		namespaces = slices.DeleteFunc(namespaces, func(namespace string) bool {
			q, some := c.ask(namespace, now)
			if some {
				list = append(list, q)
			}
			return !some
		})
	}
	return list
}

// ask returns the next question of a namespace; false: its time has not come, or the limits do not allow it.
func (c *Checker) ask(namespace string, now time.Time) (question Question, some bool) {
	q := c.waiting[namespace]
	if q.Len() == 0 {
		delete(c.waiting, namespace)
	}
	if !q.Due(now) || c.asking.Full(namespace) {
		return question, false
	}
	e, _ := q.First()
	is, _ := e.next()
	if !c.Rates.Take(namespace, c.Cost(is.check.Kind), now) {
		return question, false
	}
	c.asking.Take(namespace)
	e.due.Leave()
	e.asking, e.asked, is.next = true, now, now.Add(c.spread(is.check.Interval))
	return Question{probe.Question{Target: e.target, Check: is.check}, is, e}, true
}

// spread lengthens a pause by up to a tenth, so that nodes and endpoints do not ask at the same time.
func (c *Checker) spread(pause time.Duration) time.Duration {
	return pause + time.Duration(c.Jitter()*float64(pause)/10)
}
