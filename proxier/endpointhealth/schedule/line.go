package schedule

import (
	"container/heap"
	"maps"
	"slices"
	"time"
)

// Line has values wait until they are asked. In each lane, each namespace has a queue of its own, a rate, and a part of the room
// for those that are being asked at the same time. What the limits do not allow is late. Namespaces have turns.
type Line[V any] struct {
	cost    func(V) time.Duration
	waiting map[payer]*entries[V]
}

// Lane has the limits of some values of a line: how many are being asked, and what their questions may cost.
type Lane struct {
	Asking *Room
	Rates  *Rates
}

// payer is at whose expense a value is asked.
type payer struct {
	lane      *Lane
	namespace string
}

// NewLine returns an empty line. A question has a cost, which rates bound.
func NewLine[V any](cost func(V) time.Duration) Line[V] {
	return Line[V]{cost: cost, waiting: map[payer]*entries[V]{}}
}

// Put has an entry wait for a time, at the expense of a namespace. One that is being asked does not wait.
func (l *Line[V]) Put(e *Entry[V], lane *Lane, namespace string, at time.Time) {
	if e.asked {
		return
	}
	e.Leave()
	e.payer, e.at = payer{lane, namespace}, at
	if e.queue = l.waiting[e.payer]; e.queue == nil {
		e.queue = &entries[V]{}
		l.waiting[e.payer] = e.queue
	}
	heap.Push(e.queue, e)
}

// Due returns the values whose time has come. Each is being asked until Ended.
func (l *Line[V]) Due(now time.Time) (list []V) {
	payers := slices.Collect(maps.Keys(l.waiting)) // in no order: none is always the first
	for len(payers) > 0 {
		payers = slices.DeleteFunc(payers, func(p payer) bool {
			v, some := l.take(p, now)
			if some {
				list = append(list, v)
			}
			return !some
		})
	}
	return list
}

// take returns the next value of a namespace in a lane; false: its time has not come, or the limits do not allow it.
func (l *Line[V]) take(p payer, now time.Time) (v V, some bool) {
	q := *l.waiting[p]
	if len(q) == 0 {
		delete(l.waiting, p)
		return v, false
	}
	e := q[0]
	if now.Before(e.at) || p.lane.Asking.Full(p.namespace) || !p.lane.Rates.Take(p.namespace, l.cost(e.Value), now) {
		return v, false
	}
	p.lane.Asking.Take(p.namespace)
	e.Leave()
	e.asked = true
	return e.Value, true
}

// Ended notes that a value is not being asked any more.
func (l *Line[V]) Ended(e *Entry[V]) {
	e.asked = false
	e.payer.lane.Asking.Leave(e.payer.namespace)
}

// Waiting returns how many values wait.
func (l *Line[V]) Waiting() (n int) {
	for _, q := range l.waiting {
		n += len(*q)
	}
	return n
}

// Entry is the place of a value in a line, which owner and line share. The zero value does not wait.
type Entry[V any] struct {
	Value V
	queue *entries[V]
	at    time.Time
	index int
	payer payer // the latest one
	asked bool  // it is being asked, and does not wait
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
