package schedule

import (
	"container/heap"
	"time"
)

// Queue holds values until their time has come. The zero value is empty.
type Queue[V any] struct{ entries entries[V] }

// Entry is the place of a value in a queue, which owner and queue share. The zero value is in no queue.
type Entry[V any] struct {
	Value     V
	queue     *Queue[V]
	at        time.Time
	index     int
	namespace string // that asks, or asked last
	asked     bool   // it is being asked, and is in no queue
}

// Waits reports whether an entry is in a queue.
func (e *Entry[V]) Waits() bool { return e.queue != nil }

// Put sets the time of an entry. If the entry is in another queue, it leaves that one.
func (q *Queue[V]) Put(e *Entry[V], at time.Time) {
	if e.asked {
		return
	}
	e.Leave()
	e.queue, e.at = q, at
	heap.Push(&q.entries, e)
}

// Leave takes an entry out of its queue.
func (e *Entry[V]) Leave() {
	if e.queue != nil {
		heap.Remove(&e.queue.entries, e.index)
		e.queue = nil
	}
}

// Len returns how many values wait.
func (q *Queue[V]) Len() int { return len(q.entries) }

// Due returns the first entry if its time has come, and nil otherwise.
func (q *Queue[V]) Due(now time.Time) *Entry[V] {
	if len(q.entries) == 0 || now.Before(q.entries[0].at) {
		return nil
	}
	return q.entries[0]
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
