package claims

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func (t *tree) depth() int {
	if t == nil {
		return 0
	}
	return 1 + max(t.left.depth(), t.right.depth())
}

// TestTree compares a tree that changes at random with a list.
func TestTree(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	c := New()
	for id := range 60 {
		c.claimants = append(c.claimants, claimant{created: int64(id)})
	}
	var root *tree
	var list []*tree
	for range 3000 {
		first := uint16(1 + r.IntN(300))
		n := &tree{key: key{port: first, end: first + uint16(r.IntN(40))}, of: c, holder: newBid(1+r.Uint32N(60), rankExternalIP)}
		if n.end == n.port {
			n.end = 0
		}
		if r.IntN(2) == 0 {
			n.served = n.holder
		}
		if i := slices.IndexFunc(list, func(o *tree) bool { return o.key == n.key }); i >= 0 {
			list, root = slices.Delete(list, i, i+1), root.remove(n.key)
		} else {
			list, root = append(list, n), root.insert(n)
		}
		o := overlap{c, 1 + r.Uint32N(60), claim{key{port: uint16(1 + r.IntN(340)), end: uint16(r.IntN(2)) * 350}, rankExternalIP}}
		best := newBid(o.id, rankExternalIP)
		var got, want []blockedKey
		var strongest, found key
		for _, n := range list {
			if o.rivals(n.key) && n.served.id() > o.id {
				want = append(want, blockedKey{n.served.id(), n.key})
			}
			if o.rivals(n.key) && (c.before(n.holder, best) || n.holder == best && n.compare(strongest) < 0) {
				best, strongest = n.holder, n.key
			}
		}
		o.served(root, &got)
		slices.SortFunc(want, func(a, b blockedKey) int { return a.compare(b.key) })
		if !slices.Equal(got, want) {
			t.Fatalf("%v are served and weaker than %v, want %v", got, o.want, want)
		}
		is := newBid(o.id, rankExternalIP)
		if o.strongest(root, &is, &found); is != best || found != strongest {
			t.Fatalf("%v of %d is the strongest beside %v, want %v of %d", found, is.id(), o.want, strongest, best.id())
		}
		root = root.remove(key{port: 999}) // nobody has it
	}
}

// TestDepthOfTree: a look at a place costs little, whatever ports tenants choose: here they come in order.
func TestDepthOfTree(t *testing.T) {
	var root *tree
	c := New()
	for first := range uint16(60_000) {
		root = root.insert(&tree{key: key{port: 1 + first, end: 3 + first}, of: c})
	}
	if depth := root.depth(); depth > 100 {
		t.Errorf("the tree of 60,000 ranges has %d levels", depth)
	}
}
