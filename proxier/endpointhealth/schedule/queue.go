package schedule

import (
	"container/heap"
	"time"
)

// Queue holds values until their time has come. The zero value is empty.
type Queue[V any] struct{ entries entries[V] }

// Entry is the place of a value in a queue, which owner and queue share. The zero value is in no queue.
type Entry[V any] struct {
	Value V
	queue *Queue[V]
	at    time.Time
	index int
}

// Waits reports whether an entry is in a queue.
func (e *Entry[V]) Waits() bool { return e.queue != nil }

// Put sets the time of an entry. If the entry is in another queue, it leaves that one.
func (q *Queue[V]) Put(e *Entry[V], at time.Time) {
	if e.queue != q {
		e.Leave()
	}
	e.at = at
	if e.queue == q {
		heap.Fix(&q.entries, e.index)
		return
	}
	e.queue = q
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

// First returns the value that is next, and its time. The queue must not be empty.
func (q *Queue[V]) First() (v V, at time.Time) { return q.entries[0].Value, q.entries[0].at }

// Due reports whether the time of the first value has come.
func (q *Queue[V]) Due(now time.Time) bool { return len(q.entries) > 0 && !now.Before(q.entries[0].at) }

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
