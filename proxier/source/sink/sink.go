// Package sink writes objects into the store, but only those that differ from what it wrote before.
package sink

import (
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Found is an object that a source has read: its name, its value and its problems. The value is nil if the proxy does
// not serve the object.
type Found[T any] struct {
	Name     state.Name
	Value    *T
	Problems []state.Problem
}

// Sink writes objects of one kind into the store, but only those that differ from what it wrote before. So neither a
// Service whose status conditions changed nor a new list of 50,000 unchanged Services after a lost watch causes a pass.
// The sink holds the values that the store holds, not copies. Only one goroutine uses it.
type Sink[T any] struct {
	Kind   string
	known  map[state.Name]*T              // nil: an object that has only problems
	faulty map[state.Name][]state.Problem // the problems of the known objects that have any
	equal  func(a, b *T) bool
	set    func(value *T, problems []state.Problem)
	remove func(state.Name)
	report func(kind string, name state.Name, problems []state.Problem)
}

func newSink[T any](kind string, store *state.Store) *Sink[T] {
	return &Sink[T]{
		Kind:   kind,
		known:  map[state.Name]*T{},
		faulty: map[state.Name][]state.Problem{},
		equal:  func(a, b *T) bool { return reflect.DeepEqual(a, b) },
		report: store.SetProblems,
	}
}

// Put writes the current form of an object.
func (s *Sink[T]) Put(f Found[T]) {
	old, problems := s.known[f.Name], s.faulty[f.Name]
	sameProblems := slices.Equal(problems, f.Problems)
	switch {
	case f.Value != nil && old != nil && sameProblems && (old == f.Value || s.equal(old, f.Value)):
		return
	case f.Value != nil:
		s.set(f.Value, f.Problems)
	default:
		if old != nil {
			s.remove(f.Name) // removes the problems as well
			sameProblems = len(f.Problems) == 0
		}
		if !sameProblems {
			s.report(s.Kind, f.Name, f.Problems)
		}
	}
	s.remember(f)
}

func (s *Sink[T]) remember(f Found[T]) {
	if f.Value == nil && len(f.Problems) == 0 {
		delete(s.known, f.Name)
	} else {
		s.known[f.Name] = f.Value
	}
	if len(f.Problems) == 0 {
		delete(s.faulty, f.Name)
	} else {
		s.faulty[f.Name] = f.Problems
	}
}

// Drop removes an object and its problems. An unknown name is no change.
func (s *Sink[T]) Drop(name state.Name) { s.Put(Found[T]{Name: name}) }

// Replace takes a complete list: it writes the objects of the list and drops all others.
func (s *Sink[T]) Replace(all []Found[T]) {
	present := make(map[state.Name]struct{}, len(all))
	for _, f := range all {
		present[f.Name] = struct{}{}
		s.Put(f)
	}
	var gone []state.Name
	for name := range s.known {
		if _, ok := present[name]; !ok {
			gone = append(gone, name)
		}
	}
	slices.SortFunc(gone, state.Name.Compare) // the order of changes must not depend on chance
	for _, name := range gone {
		s.Drop(name)
	}
}

// Sinks holds the sink of each kind of object.
type Sinks struct {
	Services     *Sink[state.Service]
	Slices       *Sink[state.Slice]
	Nodes        *Sink[state.Node] // only this node's Node object
	ServiceCIDRs *Sink[convert.ServiceCIDR]
}

func New(store *state.Store) *Sinks {
	s := &Sinks{
		Services:     newSink[state.Service](convert.KindService, store),
		Slices:       newSink[state.Slice](convert.KindSlice, store),
		Nodes:        newSink[state.Node](convert.KindNode, store),
		ServiceCIDRs: newSink[convert.ServiceCIDR](convert.KindServiceCIDR, store),
	}
	s.Services.set, s.Services.remove = store.SetService, store.DeleteService
	s.Slices.set, s.Slices.remove = store.SetSlice, store.DeleteSlice
	// It ignores the trigger time: a slice that was written again without a change needs no pass, so there is no latency to measure
	// from its trigger.
	s.Slices.equal = func(a, b *state.Slice) bool {
		x, y := *a, *b
		x.Trigger, y.Trigger = time.Time{}, time.Time{}
		return reflect.DeepEqual(&x, &y)
	}
	s.Nodes.set, s.Nodes.remove = store.SetNode, func(state.Name) { store.SetNode(nil, nil) }
	joined := &rangeSet{store: store, byName: map[string][]netip.Prefix{}}
	s.ServiceCIDRs.set, s.ServiceCIDRs.remove = joined.set, joined.remove
	return s
}

// rangeSet joins the ranges of all ServiceCIDR objects into the single list of the store.
type rangeSet struct {
	store  *state.Store
	byName map[string][]netip.Prefix
}

func (r *rangeSet) set(c *convert.ServiceCIDR, problems []state.Problem) {
	r.byName[c.Name] = c.Prefixes
	r.store.SetProblems(convert.KindServiceCIDR, state.Name{Name: c.Name}, problems)
	r.write()
}

func (r *rangeSet) remove(n state.Name) {
	delete(r.byName, n.Name)
	r.store.SetProblems(convert.KindServiceCIDR, n, nil)
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
