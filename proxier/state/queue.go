package state

// Turns holds values that wait. Namespaces have turns. In a namespace, the first one in is the first out.
//
// A namespace that had no value here comes before all that had turns. So the one of a tenant never waits for the many of
// another. It is fresh again only after all others had their turns, so a tenant with ever new values does not keep the
// others waiting either.
//
// A namespace whose turns cost much misses the next ones while others wait (Charge). A namespace on hold has no turns.
type Turns[V any] struct {
	fresh   []string        // namespaces that had no turn yet, in order
	turns   []string        // namespaces that had one, in the order of the next ones; some have no more values
	listed  map[string]bool // those in fresh and turns
	waiting map[string][]V  // by namespace; none is empty
	held    map[string][]V  // the same for namespaces on hold
	owed    map[string]int  // turns that a namespace misses
	size    int             // how many values there are in waiting
	peak    int             // how many there were at most since the queue was empty
}

// longQueue is how many values a queue had that lets go of its memory when it is empty.
const longQueue = 1000

// NewTurns returns Turns in which nothing waits.
func NewTurns[V any]() Turns[V] {
	return Turns[V]{listed: map[string]bool{}, waiting: map[string][]V{}, held: map[string][]V{}, owed: map[string]int{}}
}

// Hold takes the turns of a namespace away. A pass that takes a Service of it finds none.
func (q *Turns[V]) Hold(namespace string) {
	if _, held := q.held[namespace]; !held {
		q.held[namespace] = q.waiting[namespace]
		q.size -= len(q.waiting[namespace])
		delete(q.waiting, namespace)
	}
}

// Charge has a namespace miss some turns. Nobody owes any who did not keep others waiting.
func (q *Turns[V]) Charge(namespace string, turns int) {
	if !q.Empty() && turns > 0 {
		q.owed[namespace] += turns
	}
}

// misses reports whether a namespace misses its turn, because it owes one to others that wait.
func (q *Turns[V]) misses(namespace string) bool {
	owed := q.owed[namespace]
	if owed == 0 {
		return false
	}
	if _, waits := q.waiting[namespace]; waits && len(q.waiting) == 1 {
		delete(q.owed, namespace) // nobody else waits
		return false
	}
	if q.owed[namespace] = owed - 1; owed == 1 {
		delete(q.owed, namespace)
	}
	return true
}

// Release gives a namespace its turns back, after those of the others.
func (q *Turns[V]) Release(namespace string) {
	values := q.held[namespace]
	delete(q.held, namespace)
	if len(values) == 0 {
		return
	}
	q.waiting[namespace] = values
	q.size += len(values)
	q.peak = max(q.peak, q.size)
	if !q.listed[namespace] {
		q.listed[namespace] = true
		q.turns = append(q.turns, namespace)
	}
}

// Empty reports whether nothing waits.
func (q *Turns[V]) Empty() bool { return q.size == 0 }

// Len returns how many values wait.
func (q *Turns[V]) Len() int { return q.size }

// Waiting returns how many values of a namespace wait.
func (q *Turns[V]) Waiting(namespace string) int { return len(q.waiting[namespace]) }

// Push adds a value.
func (q *Turns[V]) Push(namespace string, v V) {
	if values, held := q.held[namespace]; held {
		q.held[namespace] = append(values, v)
		return
	}
	q.size++
	q.peak = max(q.peak, q.size)
	q.waiting[namespace] = append(q.waiting[namespace], v)
	if !q.listed[namespace] {
		q.listed[namespace] = true
		q.fresh = append(q.fresh, namespace)
	}
}

// Pop takes a value of the namespace whose turn it is. It returns false if there is none.
func (q *Turns[V]) Pop() (namespace string, v V, ok bool) {
	for !q.Empty() {
		from := &q.fresh // there is a namespace in one of both as long as values wait
		if len(q.fresh) == 0 {
			from = &q.turns
		}
		namespace, *from = (*from)[0], (*from)[1:]
		if q.misses(namespace) {
			q.turns = append(q.turns, namespace)
			continue
		}
		waiting := q.waiting[namespace]
		if len(waiting) == 0 {
			delete(q.listed, namespace)
			continue
		}
		q.turns = append(q.turns, namespace)
		q.keep(namespace, waiting[1:])
		if q.Empty() { // who had turns is forgotten
			if max(q.peak, len(q.listed)) > longQueue {
				q.listed, q.waiting = map[string]bool{}, map[string][]V{}
			}
			clear(q.listed)
			clear(q.owed)
			q.fresh, q.turns, q.peak = nil, nil, 0
		}
		return namespace, waiting[0], true
	}
	return "", v, false
}

// keep leaves a namespace all of its values but one.
func (q *Turns[V]) keep(namespace string, waiting []V) {
	q.size--
	if q.waiting[namespace] = waiting; len(waiting) == 0 {
		delete(q.waiting, namespace)
	}
}

// MakeRoom drops the latest value of the namespace that has the most, if that leaves it with no fewer than the given one
// has after a Push. It reports whether it did. A caller that bounds a queue in this way lets no namespace take the room of
// one that has less.
func (q *Turns[V]) MakeRoom(namespace string) bool {
	longest, n := "", q.Waiting(namespace)+1
	for other, waiting := range q.waiting {
		if len(waiting) > n {
			longest, n = other, len(waiting)
		}
	}
	if n == q.Waiting(namespace)+1 {
		return false
	}
	q.keep(longest, q.waiting[longest][:n-1])
	return true
}
