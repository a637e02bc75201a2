package schedule

import (
	"container/heap"
	"maps"
	"slices"
	"time"
)

// Line has values wait until they are asked. Each namespace has a queue of its own, a rate, and a part of the room for those
// that are being asked at the same time. What the limits do not allow is late. Namespaces have turns.
type Line[V any] struct {
	cost    func(V) time.Duration
	rates   *Rates
	asking  *Room
	waiting map[string]*entries[V] // by namespace
}

// NewLine returns an empty line. The room is for values that are being asked. A question has a cost, which the rates bound.
func NewLine[V any](asking *Room, rates *Rates, cost func(V) time.Duration) Line[V] {
	return Line[V]{cost: cost, rates: rates, asking: asking, waiting: map[string]*entries[V]{}}
}

// Put has an entry wait for a time, at the expense of a namespace. One that is being asked does not wait.
func (l *Line[V]) Put(e *Entry[V], namespace string, at time.Time) {
	if e.asked {
		return
	}
	q := l.waiting[namespace]
	if q == nil {
		q = &entries[V]{}
		l.waiting[namespace] = q
	}
	e.Leave()
	e.queue, e.namespace, e.at = q, namespace, at
	heap.Push(q, e)
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
	q := *l.waiting[namespace]
	if len(q) == 0 {
		delete(l.waiting, namespace)
		return v, false
	}
	e := q[0]
	if now.Before(e.at) || l.asking.Full(namespace) || !l.rates.Take(namespace, l.cost(e.Value), now) {
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
		waiting += len(*q)
	}
	return waiting, l.asking.used
}

// Entry is the place of a value in a line, which owner and line share. The zero value does not wait.
type Entry[V any] struct {
	Value     V
	queue     *entries[V]
	at        time.Time
	index     int
	namespace string // that asks, or asked last
	asked     bool   // it is being asked, and does not wait
}

// Asked reports whether an entry is being asked.
func (e *Entry[V]) Asked() bool { return e.asked }

// Leave has an entry not wait any more.
func (e *Entry[V]) Leave() {
	if e.queue != nil {
		heap.Remove(e.queue, e.index)
		e.queue = nil
	}
}

// entries is a heap by time.
type entries[V any] []*Entry[V]

func (h entries[V]) Len() int           { return len(h) }
func (h entries[V]) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h entries[V]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *entries[V]) Push(x any) {
	e := x.(*Entry[V])
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop is for package heap.
func (h *entries[V]) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}
