package events

import (
	"sync"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// eventQueue limits how many Events wait for the API server. Further problems are only in the log and the metrics.
const eventQueue = 256

// noteQueue holds the Events that wait. Namespaces have turns, and when it is full, the namespace with the most Events
// loses its latest one. So a tenant with thousands of bad Services costs the others no Event. Events on the Node are in
// the namespace "". Any goroutine may use it.
type noteQueue struct {
	wake chan struct{} // delivers a value while Events wait

	mu      sync.Mutex
	notes   state.Turns[Event]
	dropped int // since takeDropped
}

// push adds an Event. It returns false if an Event was dropped: this one or that of another namespace.
func (q *noteQueue) push(n Event) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	namespace := n.Service.Namespace
	full := q.notes.Len() == eventQueue
	if full {
		q.dropped++
		if !q.notes.MakeRoom(namespace) {
			return false
		}
	}
	q.notes.Push(namespace, n)
	q.signal()
	return !full
}

// pop takes the next Event. It returns false if there is none.
func (q *noteQueue) pop() (n Event, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, n, ok = q.notes.Pop()
	if !q.notes.Empty() {
		q.signal()
	}
	return n, ok
}

func (q *noteQueue) signal() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// takeDropped returns how many Events were dropped since the last call.
func (q *noteQueue) takeDropped() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n, q.dropped = q.dropped, 0
	return n
}
