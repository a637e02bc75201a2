package claims

import (
	"math/rand/v2"
	"slices"
)

// ranges is what the register knows about ranges of ports. A Service does not get a frontend that overlaps with a stronger
// claim of another Service, whether or not that Service gets it. So of two frontends that overlap, the kernel never sees
// both, and who gets one depends on the claims alone.
type ranges struct {
	at        map[key]*tree                   // the places with ranges: what Services ask for at an address, and the ranges beside node ports
	count     map[key]int                     // how many claims to ranges are at a place
	nodePorts map[key][]uint16                // the node ports that Services hold, sorted, by place
	blocked   map[blockedKey]key              // what Services lost because of a range, and to what
	losers    map[key]map[blockedKey]struct{} // the same, by what they lost it to
}

// blockedKey is a key that a Service asks for.
type blockedKey struct {
	id uint32
	key
}

// hold records whether a Service holds a node port.
func (r *ranges) hold(k key, held bool) {
	at := k.place()
	i, _ := slices.BinarySearch(r.nodePorts[at], k.port)
	if held {
		r.nodePorts[at] = slices.Insert(r.nodePorts[at], i, k.port)
	} else {
		r.nodePorts[at] = slices.Delete(r.nodePorts[at], i, i+1)
	}
}

// meet reports whether ranges of anybody are at the places of some claims.
func (r *ranges) meet(claims []claim) bool {
	return len(r.count) > 0 && slices.ContainsFunc(claims, func(c claim) bool { return r.count[c.place()] > 0 })
}

// tree is keys of one place, each once: a binary search tree by first port (key.compare). Its heights are random (a treap),
// because tenants choose the ports. nil is the empty tree.
type tree struct {
	key
	of     *Claims // who says which bid is stronger
	holder bid
	served bid // the holder, unless it lost the key because of a range
	// Of all keys in the tree: the highest port, the strongest holder, and the weakest one that is served.
	last               uint16
	strongest, weakest bid
	height             uint32 // at least that of both branches
	left, right        *tree
}

// insert adds a key that is not in the tree; nil: none.
func (t *tree) insert(n *tree) *tree {
	if n == nil {
		return t
	}
	n.height = rand.Uint32()
	before, after := t.split(n.key)
	return join(join(before, n.with(nil, nil)), after)
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
	t.left, t.right, t.last, t.strongest, t.weakest = left, right, t.lastPort(), t.holder, t.served
	for _, branch := range []*tree{left, right} {
		if branch == nil {
			continue
		}
		t.last = max(t.last, branch.last)
		if t.of.before(branch.strongest, t.strongest) {
			t.strongest = branch.strongest
		}
		if t.weakest == nobody || branch.weakest != nobody && t.of.before(t.weakest, branch.weakest) {
			t.weakest = branch.weakest
		}
	}
	return t
}
