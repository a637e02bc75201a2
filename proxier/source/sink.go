package source

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// found is one object as a source sees it: its value, nil when there is nothing to serve, and what is wrong with it.
type found[T any] struct {
	name     state.Name
	value    *T
	problems []state.Problem
}

// sink writes one kind of object into the store, but only what differs from what was written before. A Service whose
// status conditions changed, or 50,000 of them listed again after a lost watch, cost no pass. It holds the store's own
// values, not copies. One goroutine uses it.
type sink[T any] struct {
	kind   string
	known  map[state.Name]*T              // nil values: objects that have problems only
	faulty map[state.Name][]state.Problem // of those objects of known that have any
	equal  func(a, b *T) bool
	set    func(value *T, problems []state.Problem)
	remove func(state.Name)
	report func(kind string, name state.Name, problems []state.Problem)
}

func newSink[T any](kind string, store *state.Store) *sink[T] {
	return &sink[T]{
		kind:   kind,
		known:  map[state.Name]*T{},
		faulty: map[state.Name][]state.Problem{},
		equal:  func(a, b *T) bool { return reflect.DeepEqual(a, b) },
		report: store.SetProblems,
	}
}

// put writes an object as it is now.
func (s *sink[T]) put(f found[T]) {
	old, problems := s.known[f.name], s.faulty[f.name]
	sameProblems := slices.Equal(problems, f.problems)
	switch {
	case f.value != nil && old != nil && sameProblems && s.equal(old, f.value):
		return
	case f.value != nil:
		s.set(f.value, f.problems)
	default:
		if old != nil {
			s.remove(f.name) // takes the problems along
			sameProblems = len(f.problems) == 0
		}
		if !sameProblems {
			s.report(s.kind, f.name, f.problems)
		}
	}
	s.remember(f)
}

func (s *sink[T]) remember(f found[T]) {
	if f.value == nil && len(f.problems) == 0 {
		delete(s.known, f.name)
	} else {
		s.known[f.name] = f.value
	}
	if len(f.problems) == 0 {
		delete(s.faulty, f.name)
	} else {
		s.faulty[f.name] = f.problems
	}
}

// drop removes an object with its problems; an unknown one is no change.
func (s *sink[T]) drop(name state.Name) { s.put(found[T]{name: name}) }

// replace writes all objects that there are and drops those that vanished.
func (s *sink[T]) replace(all []found[T]) {
	present := make(map[state.Name]struct{}, len(all))
	for _, f := range all {
		present[f.name] = struct{}{}
		s.put(f)
	}
	for name := range s.known {
		if _, ok := present[name]; !ok {
			s.drop(name)
		}
	}
}

// sinks are the ways into the store, one for each kind of object.
type sinks struct {
	services     *sink[state.Service]
	slices       *sink[state.Slice]
	nodes        *sink[state.Node] // holds only the own Node
	serviceCIDRs *sink[serviceCIDR]
}

func newSinks(store *state.Store) *sinks {
	s := &sinks{
		services:     newSink[state.Service](kindService, store),
		slices:       newSink[state.Slice](kindSlice, store),
		nodes:        newSink[state.Node](kindNode, store),
		serviceCIDRs: newSink[serviceCIDR](kindServiceCIDR, store),
	}
	s.services.set, s.services.remove = store.SetService, store.DeleteService
	s.slices.set, s.slices.remove = store.SetSlice, store.DeleteSlice
	s.slices.equal = equalSlices
	s.nodes.set, s.nodes.remove = store.SetNode, func(state.Name) { store.SetNode(nil, nil) }
	joined := &rangeSet{store: store, byName: map[string][]netip.Prefix{}}
	s.serviceCIDRs.set, s.serviceCIDRs.remove = joined.set, joined.remove
	return s
}

// equalSlices ignores the trigger time: a slice that was only written again changes nothing in the kernel, and its
// trigger would be measured against a pass that had no work to do.
func equalSlices(a, b *state.Slice) bool {
	x, y := *a, *b
	x.Trigger, y.Trigger = time.Time{}, time.Time{}
	return reflect.DeepEqual(&x, &y)
}

// rangeSet joins all ServiceCIDR objects into the one list that the store wants.
type rangeSet struct {
	store  *state.Store
	byName map[string][]netip.Prefix
}

func (r *rangeSet) set(c *serviceCIDR, problems []state.Problem) {
	r.byName[c.name] = c.prefixes
	r.store.SetProblems(kindServiceCIDR, state.Name{Name: c.name}, problems)
	r.write()
}

func (r *rangeSet) remove(n state.Name) {
	delete(r.byName, n.Name)
	r.store.SetProblems(kindServiceCIDR, n, nil)
	r.write()
}

func (r *rangeSet) write() {
	var joined []netip.Prefix
	for _, prefixes := range r.byName {
		joined = append(joined, prefixes...)
	}
	slices.SortFunc(joined, netip.Prefix.Compare)
	r.store.SetServiceCIDRs(slices.Compact(joined))
}
