package schedule

import (
	"maps"
	"slices"
	"time"
)

// Line has values wait until they are asked. Each namespace has a queue of its own, a rate, and half of the places that others
// leave for those that are being asked at the same time. What the limits do not allow is late. Namespaces have turns.
type Line[V any] struct {
	cost    func(V) time.Duration
	rates   *Rates
	asking  *Room
	waiting map[string]*Queue[V] // by namespace
}

// NewLine returns an empty line. A question has a cost, which the rates bound.
func NewLine[V any](places int, rates *Rates, cost func(V) time.Duration) Line[V] {
	return Line[V]{cost: cost, rates: rates, asking: NewRoom(places, 2), waiting: map[string]*Queue[V]{}}
}

// Put has an entry wait for a time, at the expense of a namespace. One that is being asked does not wait.
func (l *Line[V]) Put(e *Entry[V], namespace string, at time.Time) {
	if e.asked {
		return
	}
	q := l.waiting[namespace]
	if q == nil {
		q = &Queue[V]{}
		l.waiting[namespace] = q
	}
	e.namespace = namespace
	q.Put(e, at)
}

// Shorter reports whether fewer values of a namespace wait than of the one that an entry waits with.
func (l *Line[V]) Shorter(namespace string, e *Entry[V]) bool {
	q := l.waiting[namespace]
	return e.queue != nil && (q == nil || q.Len() < e.queue.Len())
}

// Due returns the values whose time has come. Each is being asked until Ended.
func (l *Line[V]) Due(now time.Time) (list []V) {
	namespaces := slices.Collect(maps.Keys(l.waiting)) // in no order: none is always the first
	for len(namespaces) > 0 {
		namespaces = slices.DeleteFunc(namespaces, func(namespace string) bool {
			v, some := l.take(namespace, now)
			if some {
				list = append(list, v)
			}
			return !some
		})
	}
	return list
}

// take returns the next value of a namespace; false: its time has not come, or the limits do not allow it.
func (l *Line[V]) take(namespace string, now time.Time) (v V, some bool) {
	q := l.waiting[namespace]
	if q.Len() == 0 {
		delete(l.waiting, namespace)
		return v, false
	}
	e := q.Due(now)
	if e == nil || l.asking.Full(namespace) || !l.rates.Take(namespace, l.cost(e.Value), now) {
		return v, false
	}
	l.asking.Take(namespace)
	e.Leave()
	e.asked = true
	return e.Value, true
}

// Ended notes that a value is not being asked any more.
func (l *Line[V]) Ended(e *Entry[V]) {
	e.asked = false
	l.asking.Leave(e.namespace)
}

// Counts returns how many values wait, and how many are being asked.
func (l *Line[V]) Counts() (waiting, asking int) {
	for _, q := range l.waiting {
		waiting += q.Len()
	}
	return waiting, l.asking.used
}
