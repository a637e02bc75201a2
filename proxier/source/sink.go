package source

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// found is an object that a source has read: its name, its value and its problems. The value is nil if the proxy does
// not serve the object.
type found[T any] struct {
	name     state.Name
	value    *T
	problems []state.Problem
}

// sink writes objects of one kind into the store, but only those that differ from what it wrote before. So neither a
// Service whose status conditions changed nor a new list of 50,000 unchanged Services after a lost watch causes a pass.
// The sink holds the values that the store holds, not copies. Only one goroutine uses it.
type sink[T any] struct {
	kind   string
	known  map[state.Name]*T              // nil: an object that has only problems
	faulty map[state.Name][]state.Problem // the problems of the known objects that have any
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

// put writes the current form of an object.
func (s *sink[T]) put(f found[T]) {
	old, problems := s.known[f.name], s.faulty[f.name]
	sameProblems := slices.Equal(problems, f.problems)
	switch {
	case f.value != nil && old != nil && sameProblems && (old == f.value || s.equal(old, f.value)):
		return
	case f.value != nil:
		s.set(f.value, f.problems)
	default:
		if old != nil {
			s.remove(f.name) // removes the problems as well
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

// drop removes an object and its problems. An unknown name is no change.
func (s *sink[T]) drop(name state.Name) { s.put(found[T]{name: name}) }

// replace takes a complete list: it writes the objects of the list and drops all others.
func (s *sink[T]) replace(all []found[T]) {
	present := make(map[state.Name]struct{}, len(all))
	for _, f := range all {
		present[f.name] = struct{}{}
		s.put(f)
	}
	var gone []state.Name
	for name := range s.known {
		if _, ok := present[name]; !ok {
			gone = append(gone, name)
		}
	}
	slices.SortFunc(gone, state.Name.Compare) // the order of changes must not depend on chance
	for _, name := range gone {
		s.drop(name)
	}
}

// sinks holds the sink of each kind of object.
type sinks struct {
	services     *sink[state.Service]
	slices       *sink[state.Slice]
	nodes        *sink[state.Node] // only this node's Node object
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

// equalSlices ignores the trigger time. A slice that was written again without a change needs no pass, so there is no
// latency to measure from its trigger.
func equalSlices(a, b *state.Slice) bool {
	x, y := *a, *b
	x.Trigger, y.Trigger = time.Time{}, time.Time{}
	return reflect.DeepEqual(&x, &y)
}

// rangeSet joins the ranges of all ServiceCIDR objects into the single list of the store.
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

// Source is a source that closes Synced when its first complete list is in the store.
type Source interface {
	Synced() <-chan struct{}
}

// MarkSynced waits until all sources have delivered their first complete list, and then marks the store as synced. The
// source of Services and the source of host addresses must both have delivered, because a ruleset without one of them
// would be wrong for every Service. MarkSynced returns the error of the context if the context ends first.
func MarkSynced(ctx context.Context, store *state.Store, sources ...Source) error {
	for _, s := range sources {
		select {
		case <-s.Synced():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	store.MarkSynced()
	return nil
}
