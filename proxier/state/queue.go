package state

// pending is a change of a Service that the kernel does not have.
type pending struct {
	latest uint64      // revision of the latest change
	queued bool        // no pass has taken the latest change
	kinds  changeKinds // what changed
}

// queue holds Services that wait for a pass. Namespaces have turns. In a namespace, the first one in is the first out.
//
// A namespace that had no Service here comes before all that had turns. So the change of one tenant never waits for the
// many of another. It is fresh again only after all others had their turns, so a tenant with ever new changes does not
// keep the others waiting either.
//
// A namespace on hold has no turns.
type queue struct {
	fresh  []string            // namespaces that had no turn yet, in order
	turns  []string            // namespaces that had one, in the order of the next ones; some have no more Services
	listed map[string]bool     // those in fresh and turns
	names  map[string][]string // by namespace
	held   map[string][]string // the same for namespaces on hold
}

func newQueue() queue {
	return queue{listed: map[string]bool{}, names: map[string][]string{}, held: map[string][]string{}}
}

// hold takes the turns of a namespace away. A pass that takes a Service of it finds none.
func (q *queue) hold(namespace string) {
	if _, held := q.held[namespace]; !held {
		q.held[namespace] = q.names[namespace]
		delete(q.names, namespace)
	}
}

// release gives a namespace its turns back, after those of the others.
func (q *queue) release(namespace string) {
	names := q.held[namespace]
	delete(q.held, namespace)
	if len(names) == 0 {
		return
	}
	q.names[namespace] = names
	if !q.listed[namespace] {
		q.listed[namespace] = true
		q.turns = append(q.turns, namespace)
	}
}

func (q *queue) empty() bool { return len(q.names) == 0 }

func (q *queue) push(n Name) {
	if names, held := q.held[n.Namespace]; held {
		q.held[n.Namespace] = append(names, n.Name)
		return
	}
	q.names[n.Namespace] = append(q.names[n.Namespace], n.Name)
	if !q.listed[n.Namespace] {
		q.listed[n.Namespace] = true
		q.fresh = append(q.fresh, n.Namespace)
	}
}

// pop takes a Service of the namespace whose turn it is. It returns false if there is none.
func (q *queue) pop() (n Name, ok bool) {
	for !q.empty() {
		namespace := q.next()
		waiting := q.names[namespace]
		if len(waiting) == 0 {
			delete(q.listed, namespace)
			continue
		}
		q.turns = append(q.turns, namespace)
		if q.names[namespace] = waiting[1:]; len(waiting) == 1 {
			delete(q.names, namespace)
		}
		if q.empty() {
			held := q.held
			*q = newQueue() // lets go of the memory of a long queue
			q.held = held
		}
		return Name{Namespace: namespace, Name: waiting[0]}, true
	}
	return Name{}, false
}

// next takes the namespace whose turn it is. There is one as long as Services wait.
func (q *queue) next() (namespace string) {
	from := &q.fresh
	if len(q.fresh) == 0 {
		from = &q.turns
	}
	namespace, *from = (*from)[0], (*from)[1:]
	return namespace
}
