package state

// pending is a change of a Service that the kernel does not have.
type pending struct {
	latest uint64      // revision of the latest change
	queued bool        // no pass has taken the latest change
	kinds  changeKinds // what changed
}

// queue holds Services that wait for a pass. Namespaces have turns. In a namespace, the first one in is the first out.
type queue struct {
	turns []string            // the namespaces that have Services here, in the order of their turns
	names map[string][]string // by namespace
}

func newQueue() queue { return queue{names: map[string][]string{}} }

func (q *queue) empty() bool { return len(q.turns) == 0 }

func (q *queue) push(n Name) {
	waiting := q.names[n.Namespace]
	if len(waiting) == 0 {
		q.turns = append(q.turns, n.Namespace)
	}
	q.names[n.Namespace] = append(waiting, n.Name)
}

// pop takes a Service of the namespace whose turn it is. It returns false if there is none.
func (q *queue) pop() (n Name, ok bool) {
	if q.empty() {
		return Name{}, false
	}
	namespace := q.turns[0]
	q.turns = q.turns[1:]
	waiting := q.names[namespace]
	n = Name{Namespace: namespace, Name: waiting[0]}
	if waiting = waiting[1:]; len(waiting) == 0 {
		delete(q.names, namespace)
	} else {
		q.names[namespace] = waiting
		q.turns = append(q.turns, namespace)
	}
	if q.empty() {
		*q = newQueue() // lets go of the memory of a long queue
	}
	return n, true
}
