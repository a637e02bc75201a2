package proxier

import (
	"maps"
	"math"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// queue is which Services the next pass plans: those that the store has as changed, and those that something else concerns.
type queue struct {
	store   *state.Store
	waiting *dataplane.Waiting
	taken   []state.Changes                // what passes took since the last one that was applied
	held    map[state.Name][]state.Changes // what passes took before of Services that wait
	left    bool                           // the last pass left Services for the next one
	replan  map[state.Name]bool            // Services to plan again, although the store has no change of them
}

// again has Services planned again with the next pass.
func (q *queue) again(names []state.Name) {
	for _, name := range names {
		q.replan[name] = true
	}
}

// environment returns whether the environment has changed, and whether the store is synced. It remembers to confirm the
// change when the kernel has it.
func (q *queue) environment() (changed, synced bool) {
	changes, synced := q.store.Take(0)
	if synced && changes.Environment {
		q.taken = append(q.taken, changes)
	}
	return changes.Environment, synced
}

// take returns the next Services to plan, and remembers to confirm them when the kernel has them. The environment is
// confirmed by what the pass took first.
func (q *queue) take(n int) []state.Name {
	changes, _ := q.store.Take(n)
	changes.Environment = false
	if len(changes.Services) > 0 {
		q.taken = append(q.taken, changes)
	}
	return changes.Services
}

// takeAgain returns the Services that are to be planned again, sorted.
func (q *queue) takeAgain() []state.Name {
	if len(q.replan) == 0 {
		return nil
	}
	names := sortNames(slices.Collect(maps.Keys(q.replan)))
	q.replan = map[state.Name]bool{}
	return names
}

// takeAll returns all changes, for a pass that plans everything.
func (q *queue) takeAll() []state.Name {
	q.replan, q.left = map[state.Name]bool{}, false
	return q.take(math.MaxInt)
}

// rest reports whether the last pass has left Services for the next one, or some of their changes.
func (q *queue) rest() bool { return q.left && q.store.Rest() || q.waiting.Some() }

// applied forgets what was taken, because the kernel has it, apart from Services that wait, and returns how long that took.
func (q *queue) applied(ended []state.Name) (took []state.Latency) {
	var taken []state.Changes
	for _, name := range ended {
		taken = append(taken, q.held[name]...)
		delete(q.held, name)
	}
	for _, changes := range append(taken, q.taken...) {
		changes.Services = slices.DeleteFunc(changes.Services, func(n state.Name) bool {
			waits := q.waiting.Has(n)
			if waits {
				q.held[n] = append(q.held[n], state.Changes{Revision: changes.Revision, Services: []state.Name{n}})
			}
			return waits
		})
		took = append(took, q.store.Applied(changes)...)
	}
	q.taken = nil
	return took
}

// sortNames sorts names. To sort them by namespace is faster than to compare whole names.
func sortNames(names []state.Name) []state.Name {
	each := map[string][]string{}
	for _, n := range names {
		each[n.Namespace] = append(each[n.Namespace], n.Name)
	}
	names = names[:0]
	for _, namespace := range slices.Sorted(maps.Keys(each)) {
		slices.Sort(each[namespace])
		for _, name := range each[namespace] {
			names = append(names, state.Name{Namespace: namespace, Name: name})
		}
	}
	return names
}
