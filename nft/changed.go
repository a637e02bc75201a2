package nft

// manyChanges is the number of elements from which a port is in Result.Changed. Ports with less cost too little to be
// counted one by one.
const manyChanges = 100

// countChange counts the elements that a service port changes.
func (e *Engine) countChange(id PortID, n int) {
	if n < manyChanges || e.rebuild {
		return
	}
	if e.changed == nil {
		e.changed = map[PortID]int{}
	}
	e.changed[id] += n
}

// takeChanged returns the counts, and begins anew.
func (e *Engine) takeChanged() map[PortID]int {
	counts := e.changed
	e.changed = nil
	return counts
}

// size counts the elements that the transaction adds and deletes.
func (t *Transaction) size() int {
	if t.unread {
		return 0
	}
	added, deleted := t.Elements()
	return added + deleted
}
