package hashing

import (
	"container/list"
	"iter"
	"strings"
)

// coming has the tables that service ports wait for, and no pool has. Those that lack slots have an order in which they get them.
type coming struct {
	count   int
	turns   list.List        // of *turn, the next one first
	byName  map[string]*turn // by namespace
	written list.List        // of tables that lack no slots
}

// turn has the tables of a namespace that lack slots.
type turn struct {
	namespace string
	tables    list.List
	place     *list.Element
}

// add adds a table, or puts one that has got all its slots to its like. Another one keeps its place.
func (c *coming) add(t *hashTable) {
	if t.place != nil && t.complete() == (t.turn == nil) {
		return
	}
	c.remove(t)
	c.count++
	if t.complete() {
		t.place = c.written.PushBack(t)
		return
	}
	namespace, _, _ := strings.Cut(t.owner, "/")
	if t.turn = c.byName[namespace]; t.turn == nil {
		t.turn = &turn{namespace: namespace}
		t.turn.place = c.turns.PushBack(t.turn)
		if c.byName == nil {
			c.byName = map[string]*turn{}
		}
		c.byName[namespace] = t.turn
	}
	t.place = t.turn.tables.PushBack(t)
}

// remove removes a table, if it is there.
func (c *coming) remove(t *hashTable) {
	switch {
	case t.place == nil:
		return
	case t.turn == nil:
		c.written.Remove(t.place)
	default:
		if t.turn.tables.Remove(t.place); t.turn.tables.Len() == 0 {
			c.turns.Remove(t.turn.place)
			delete(c.byName, t.turn.namespace)
		}
	}
	c.count--
	t.place, t.turn = nil, nil
}

// take returns the tables that lack slots, in order. The namespace of the first one is the last one next time.
func (c *coming) take() iter.Seq[*hashTable] {
	return func(yield func(*hashTable) bool) {
		first := c.turns.Front()
		defer func() {
			if first != nil {
				c.turns.MoveToBack(first) // one that is gone stays so
			}
		}()
		for at := first; at != nil; {
			next := at.Next()
			for t := range each(&at.Value.(*turn).tables) {
				if !yield(t) {
					return
				}
			}
			at = next
		}
	}
}

// all returns all tables.
func (c *coming) all() (all []*hashTable) {
	for at := c.turns.Front(); at != nil; at = at.Next() {
		for t := range each(&at.Value.(*turn).tables) {
			all = append(all, t)
		}
	}
	for t := range each(&c.written) {
		all = append(all, t)
	}
	return all
}

// each returns the tables of a list. The loop may remove the one that it is at.
func each(l *list.List) iter.Seq[*hashTable] {
	return func(yield func(*hashTable) bool) {
		for at := l.Front(); at != nil; {
			next := at.Next()
			if !yield(at.Value.(*hashTable)) {
				return
			}
			at = next
		}
	}
}
