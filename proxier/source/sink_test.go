package source

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/verdict-proxy/verdict/proxier/state"
)

func foundService(name string, change ...func(*found[state.Service])) found[state.Service] {
	n := state.Name{Namespace: "shop", Name: name}
	f := found[state.Service]{name: n, value: &state.Service{Name: n, ClusterIPs: addrs("10.96.0.1")}}
	for _, c := range change {
		c(&f)
	}
	return f
}

func faulty(f *found[state.Service]) {
	f.problems = []state.Problem{{Kind: kindService, Object: f.name, Field: "spec", Reason: "bad"}}
}

func unserved(f *found[state.Service]) { f.value = nil }

// TestSinkPassesOnlyDifferences: each step names the Services that the store must report as changed.
func TestSinkPassesOnlyDifferences(t *testing.T) {
	store := state.NewStore()
	store.MarkSynced()
	sink := newSinks(store).services
	web := state.Name{Namespace: "shop", Name: "web"}
	for _, step := range []struct {
		name     string
		do       func()
		changed  []state.Name
		problems int
		served   bool
	}{
		{"new", func() { sink.put(foundService("web")) }, []state.Name{web}, 0, true},
		{"the same", func() { sink.put(foundService("web")) }, nil, 0, true},
		{"the same in a list", func() { sink.replace([]found[state.Service]{foundService("web")}) }, nil, 0, true},
		{"other value", func() {
			sink.put(foundService("web", func(f *found[state.Service]) { f.value.ExternalLocal = true }))
		}, []state.Name{web}, 0, true},
		{"same value, new problem", func() {
			sink.put(foundService("web", func(f *found[state.Service]) { f.value.ExternalLocal = true }, faulty))
		}, []state.Name{web}, 1, true},
		{"not served, problem stays", func() { sink.put(foundService("web", unserved, faulty)) }, []state.Name{web}, 1, false},
		{"not served, the same again", func() { sink.put(foundService("web", unserved, faulty)) }, nil, 1, false},
		{"not served, without problem", func() { sink.put(foundService("web", unserved)) }, nil, 0, false},
		{"served again", func() { sink.put(foundService("web")) }, []state.Name{web}, 0, true},
		{"vanished from a list", func() { sink.replace(nil) }, []state.Name{web}, 0, false},
		{"dropped though unknown", func() { sink.drop(web) }, nil, 0, false},
		{"not served from the start, with a problem", func() { sink.put(foundService("web", unserved, faulty)) }, nil, 1, false},
		{"dropped with its problem", func() { sink.drop(web) }, nil, 0, false},
	} {
		step.do()
		c, _ := store.Pending()
		if diff := cmp.Diff(step.changed, c.Services, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: changed (-want +got):\n%s", step.name, diff)
		}
		store.Applied(c)
		if got := len(store.Problems()); got != step.problems {
			t.Errorf("%s: %d problems, want %d", step.name, got, step.problems)
		}
		if svc, _ := store.Service(web); (svc != nil) != step.served {
			t.Errorf("%s: served is %v", step.name, svc != nil)
		}
	}
	if len(sink.known)+len(sink.faulty) > 0 {
		t.Errorf("the sink still holds %v and %v", sink.known, sink.faulty)
	}
}

// TestRewrittenSliceIsNoChange: the controller sets a new trigger time even when it writes the same endpoints.
func TestRewrittenSliceIsNoChange(t *testing.T) {
	store := state.NewStore()
	store.MarkSynced()
	sink := newSinks(store).slices
	put := func(change func(*state.Slice)) bool {
		s := wantSlice(change)
		sink.put(found[state.Slice]{name: s.Name, value: s})
		c, _ := store.Pending()
		store.Applied(c)
		return len(c.Services) > 0
	}
	put(func(*state.Slice) {})
	if put(func(s *state.Slice) { s.Trigger = time.Now() }) {
		t.Error("a slice with only a new trigger time counts as changed")
	}
	if !put(func(s *state.Slice) { s.Endpoints[0].Ready = false }) {
		t.Error("a slice with a changed endpoint counts as unchanged")
	}
}

func TestServiceCIDRsAreJoined(t *testing.T) {
	store := state.NewStore()
	sink := newSinks(store).serviceCIDRs
	object := func(name string, list ...string) found[serviceCIDR] {
		return found[serviceCIDR]{name: state.Name{Name: name}, value: &serviceCIDR{name: name, prefixes: prefixes(list...)}}
	}
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"one", func() { sink.put(object("b", "10.96.0.0/12", "fd00::/112")) }, []string{"10.96.0.0/12", "fd00::/112"}},
		{"two, overlapping", func() { sink.put(object("a", "10.0.0.0/16", "10.96.0.0/12")) }, []string{"10.0.0.0/16", "10.96.0.0/12", "fd00::/112"}},
		{"changed", func() { sink.put(object("b", "172.16.0.0/16")) }, []string{"10.0.0.0/16", "10.96.0.0/12", "172.16.0.0/16"}},
		{"one gone", func() { sink.drop(state.Name{Name: "a"}) }, []string{"172.16.0.0/16"}},
		{"all gone", func() { sink.replace(nil) }, nil},
	} {
		step.do()
		if diff := cmp.Diff(prefixes(step.want...), store.Environment().ServiceCIDRs, compareValues); diff != "" {
			t.Errorf("%s: ranges (-want +got):\n%s", step.name, diff)
		}
	}
}

// source is a Source that records when MarkSynced waits for it.
type source struct {
	synced chan struct{}
	asked  chan struct{}
}

func newSource() source { return source{synced: make(chan struct{}), asked: make(chan struct{}, 1)} }

func (s source) Synced() <-chan struct{} {
	s.asked <- struct{}{}
	return s.synced
}

func TestMarkSyncedWaitsForAll(t *testing.T) {
	store := state.NewStore()
	sources := []source{newSource(), newSource(), newSource()}
	done := make(chan error, 1)
	go func() { done <- MarkSynced(context.Background(), store, sources[0], sources[1], sources[2]) }()
	for _, s := range sources {
		select {
		case <-s.asked:
		case err := <-done:
			t.Fatalf("MarkSynced returned %v before all sources were synced", err)
		}
		if _, ok := store.Pending(); ok {
			t.Fatal("the store is synced, but a source is not")
		}
		close(s.synced)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, ok := store.Pending(); !ok {
		t.Error("the store is not synced, but all sources are")
	}
}

func TestMarkSyncedEndsWithItsContext(t *testing.T) {
	store := state.NewStore()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := MarkSynced(ctx, store, newSource()); err == nil {
		t.Error("no error, although the source never delivered")
	}
	if _, ok := store.Pending(); ok {
		t.Error("the store is synced, although the source never delivered")
	}
}
