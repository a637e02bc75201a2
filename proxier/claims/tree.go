package claims

import "math/rand/v2"

// tree is keys of one place, each once: a binary search tree by first port (key.compare). Its heights are random (a treap),
// because tenants choose the ports. nil is the empty tree.
type tree struct {
	key
	last        uint16 // the highest port of all keys in the tree
	height      uint32 // at least that of both branches
	left, right *tree
}

func (t *tree) insert(k key) *tree {
	before, after := t.split(k)
	return join(join(before, &tree{key: k, last: k.lastPort(), height: rand.Uint32()}), after)
}

func (t *tree) remove(k key) *tree {
	if t == nil {
		return nil
	}
	switch order := k.compare(t.key); {
	case order < 0:
		return t.with(t.left.remove(k), t.right)
	case order > 0:
		return t.with(t.left, t.right.remove(k))
	}
	return join(t.left, t.right)
}

// split returns the keys before k, and those after it.
func (t *tree) split(k key) (before, after *tree) {
	switch {
	case t == nil:
		return nil, nil
	case t.compare(k) < 0:
		before, after = t.right.split(k)
		return t.with(t.left, before), after
	}
	before, after = t.left.split(k)
	return before, t.with(after, t.right)
}

// join is the inverse of split.
func join(before, after *tree) *tree {
	switch {
	case before == nil:
		return after
	case after == nil:
		return before
	case before.height > after.height:
		return before.with(before.left, join(before.right, after))
	}
	return after.with(join(before, after.left), after.right)
}

// with gives the root other branches.
func (t *tree) with(left, right *tree) *tree {
	t.left, t.right, t.last = left, right, t.lastPort()
	for _, branch := range []*tree{left, right} {
		if branch != nil {
			t.last = max(t.last, branch.last)
		}
	}
	return t
}

// overlapping calls do for the keys that overlap with k. The cost depends on their number, and on the height of the tree.
func (t *tree) overlapping(k key, do func(key)) {
	if t == nil || t.last < k.port {
		return
	}
	t.left.overlapping(k, do)
	if t.overlaps(k) {
		do(t.key)
	}
	if t.port <= k.lastPort() {
		t.right.overlapping(k, do)
	}
}
