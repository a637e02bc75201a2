package cluster

import (
	"maps"
	"slices"
	"sync"
)

// firstLists records which resources have not delivered their first complete list.
type firstLists struct {
	mu       sync.Mutex
	missing  map[string]struct{}
	optional map[string]struct{} // those that are optional, also when they have arrived
	required chan struct{}       // closed when only optional resources are missing
	done     chan struct{}
}

func newFirstLists() *firstLists {
	return &firstLists{
		missing: map[string]struct{}{}, optional: map[string]struct{}{}, required: make(chan struct{}), done: make(chan struct{}),
	}
}

// expect adds a resource. It returns a function that records the arrival of its list.
func (f *firstLists) expect(name string) (arrived func()) {
	f.missing[name] = struct{}{}
	return func() { f.arrived(name) }
}

func (f *firstLists) expectOptional(name string) (arrived func()) {
	f.optional[name] = struct{}{}
	return f.expect(name)
}

// onlyOptional reports whether all required resources have arrived. The caller holds mu.
func (f *firstLists) onlyOptional() bool {
	for name := range f.missing {
		if _, optional := f.optional[name]; !optional {
			return false
		}
	}
	return true
}

func (f *firstLists) arrived(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, waits := f.missing[name]; !waits {
		return
	}
	delete(f.missing, name)
	if _, optional := f.optional[name]; !optional && f.onlyOptional() {
		close(f.required) // once: this was the last required resource
	}
	if len(f.missing) == 0 {
		close(f.done)
	}
}

func (f *firstLists) waitsFor(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, waits := f.missing[name]
	return waits
}

// names returns the resources that have not arrived, sorted.
func (f *firstLists) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.missing))
}
