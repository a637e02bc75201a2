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
	var root *tree
	var list []key
	for range 3000 {
		first := uint16(1 + r.IntN(300))
		k := key{port: first, end: first + uint16(r.IntN(40))}
		if k.end == k.port {
			k.end = 0
		}
		if i := slices.Index(list, k); i >= 0 {
			list, root = slices.Delete(list, i, i+1), root.remove(k)
		} else {
			list, root = append(list, k), root.insert(k)
		}
		at := key{port: uint16(1 + r.IntN(340)), end: uint16(r.IntN(2)) * 350}
		var got []key
		root.overlapping(at, func(k key) { got = append(got, k) })
		want := slices.DeleteFunc(slices.Clone(list), func(k key) bool { return !k.overlaps(at) })
		slices.SortFunc(want, key.compare)
		if !slices.Equal(got, want) {
			t.Fatalf("%v overlap with %v, want %v", got, at, want)
		}
		root = root.remove(key{port: 999}) // nobody has it
	}
}

// TestDepthOfTree: a look at a place costs little, whatever ports tenants choose: here they come in order.
func TestDepthOfTree(t *testing.T) {
	var root *tree
	for first := range uint16(60_000) {
		root = root.insert(key{port: 1 + first, end: 3 + first})
	}
	if depth := root.depth(); depth > 100 {
		t.Errorf("the tree of 60,000 ranges has %d levels", depth)
	}
}
