package planning

import (
	"cmp"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// ranges shares the room for frontends with port ranges. The kernel needs time for each one that goes which grows with all
// that are there, so there is room for few, on the node and for each namespace. The oldest Services get it first: who has
// room depends on the Services alone, not on the order in which they are planned. A restart changes nothing.
type ranges struct {
	node, namespace int
	asking          map[state.Name]asker
	each            map[string][]asker // the same by namespace, the oldest Services first
	allowed         []asker            // those with room in their namespaces, and how much they have there; the oldest first
	given           map[state.Name]int
}

// asker is a Service that asks for room for n frontends.
type asker struct {
	name    state.Name
	created int64
	n       int
}

func (a asker) compare(b asker) int {
	return cmp.Or(cmp.Compare(a.created, b.created), a.name.Compare(b.name))
}

func newRanges(node, namespace int) ranges {
	return ranges{node: node, namespace: namespace, asking: map[state.Name]asker{}, each: map[string][]asker{}}
}

// most is what a Service may have at most.
func (r *ranges) most() plan.Limit {
	return smaller(plan.Limit{N: r.node, Flag: nodeRanges}, plan.Limit{N: r.namespace, Flag: namespaceRanges})
}

const (
	nodeRanges      = "--max-range-frontends"
	namespaceRanges = "--max-namespace-range-frontends"
)

// ask records for how many frontends a Service asks; 0: none. It returns the other Services that have less room now, and
// those that have more.
func (r *ranges) ask(want asker) (less, more []state.Name) {
	was := r.asking[want.name]
	if was.n == want.n && (was.created == want.created || was.n == 0) {
		return nil, nil
	}
	of, list := want.name.Namespace, r.each[want.name.Namespace]
	for _, a := range first(list, r.namespace) {
		r.allowed = without(r.allowed, a)
	}
	list = without(list, was)
	delete(r.asking, want.name)
	if want.n > 0 {
		r.asking[want.name], list = want, with(list, want)
	}
	if r.each[of] = list; len(list) == 0 {
		delete(r.each, of)
	}
	for _, a := range first(list, r.namespace) {
		r.allowed = with(r.allowed, a)
	}
	return r.share(want.name)
}

// share gives the room of the node to those that have some in their namespaces. It returns the Services, but for one, that
// have less now, and those that have more.
func (r *ranges) share(but state.Name) (less, more []state.Name) {
	before := r.given
	r.given = map[state.Name]int{}
	for _, a := range first(r.allowed, r.node) {
		if r.given[a.name] = a.n; a.n > before[a.name] && a.name != but {
			more = append(more, a.name)
		}
	}
	for name, n := range before {
		if r.given[name] < n && name != but {
			less = append(less, name)
		}
	}
	return less, more
}

// limit is what a Service may have now.
func (r *ranges) limit(n state.Name) plan.Limit {
	for _, a := range first(r.each[n.Namespace], r.namespace) {
		if a.name == n && r.given[n] < a.n {
			return plan.Limit{N: r.given[n], Flag: nodeRanges}
		}
	}
	return plan.Limit{N: r.given[n], Flag: namespaceRanges}
}

// first returns those that have room, with what they get. Each takes at least one place, so the cost depends on the room
// alone.
func first(list []asker, room int) (out []asker) {
	for _, a := range list {
		if room == 0 {
			break
		}
		a.n = min(a.n, room)
		room -= a.n
		out = append(out, a)
	}
	return out
}

func with(sorted []asker, a asker) []asker {
	i, _ := slices.BinarySearchFunc(sorted, a, asker.compare)
	return slices.Insert(sorted, i, a)
}

func without(sorted []asker, a asker) []asker {
	i, found := slices.BinarySearchFunc(sorted, a, asker.compare)
	if !found {
		return sorted
	}
	return slices.Delete(sorted, i, i+1)
}
