package sink

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func foundService(name string, change ...func(*Found[state.Service])) Found[state.Service] {
	n := state.Name{Namespace: "shop", Name: name}
	f := Found[state.Service]{Name: n, Value: &state.Service{Name: n, ClusterIPs: sourcetest.Addrs("10.96.0.1")}}
	for _, c := range change {
		c(&f)
	}
	return f
}

func faulty(f *Found[state.Service]) {
	f.Problems = []state.Problem{{Kind: convert.KindService, Object: f.Name, Field: "spec", Reason: "bad"}}
}

func unserved(f *Found[state.Service]) { f.Value = nil }

// TestSinkPassesOnlyDifferences: each step names the Services that the store must report as changed.
func TestSinkPassesOnlyDifferences(t *testing.T) {
	store := state.NewStore()
	store.MarkSynced()
	sink := New(store).Services
	web := state.Name{Namespace: "shop", Name: "web"}
	for _, step := range []struct {
		name     string
		do       func()
		changed  []state.Name
		problems int
		served   bool
	}{
		{"new", func() { sink.Put(foundService("web")) }, []state.Name{web}, 0, true},
		{"the same", func() { sink.Put(foundService("web")) }, nil, 0, true},
		{"the same in a list", func() { sink.Replace([]Found[state.Service]{foundService("web")}) }, nil, 0, true},
		{"other value", func() {
			sink.Put(foundService("web", func(f *Found[state.Service]) { f.Value.ExternalLocal = true }))
		}, []state.Name{web}, 0, true},
		{"same value, new problem", func() {
			sink.Put(foundService("web", func(f *Found[state.Service]) { f.Value.ExternalLocal = true }, faulty))
		}, []state.Name{web}, 1, true},
		{"not served, problem stays", func() { sink.Put(foundService("web", unserved, faulty)) }, []state.Name{web}, 1, false},
		{"not served, the same again", func() { sink.Put(foundService("web", unserved, faulty)) }, nil, 1, false},
		{"not served, without problem", func() { sink.Put(foundService("web", unserved)) }, nil, 0, false},
		{"served again", func() { sink.Put(foundService("web")) }, []state.Name{web}, 0, true},
		{"vanished from a list", func() { sink.Replace(nil) }, []state.Name{web}, 0, false},
		{"dropped though unknown", func() { sink.Drop(web) }, nil, 0, false},
		{"not served from the start, with a problem", func() { sink.Put(foundService("web", unserved, faulty)) }, nil, 1, false},
		{"dropped with its problem", func() { sink.Drop(web) }, nil, 0, false},
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
	sink := New(store).Slices
	put := func(change func(*state.Slice)) bool {
		s := &state.Slice{
			Name: state.Name{Namespace: "shop", Name: "web-x7k2p"}, Service: state.Name{Namespace: "shop", Name: "web"},
			Endpoints: []state.Endpoint{{Addr: sourcetest.Addrs("10.0.0.1")[0], Ready: true}},
		}
		change(s)
		sink.Put(Found[state.Slice]{Name: s.Name, Value: s})
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
	sink := New(store).ServiceCIDRs
	object := func(name string, list ...string) Found[convert.ServiceCIDR] {
		return Found[convert.ServiceCIDR]{Name: state.Name{Name: name}, Value: &convert.ServiceCIDR{Name: name, Prefixes: sourcetest.Prefixes(list...)}}
	}
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"one", func() { sink.Put(object("b", "10.96.0.0/12", "fd00::/112")) }, []string{"10.96.0.0/12", "fd00::/112"}},
		{"two, overlapping", func() { sink.Put(object("a", "10.0.0.0/16", "10.96.0.0/12")) }, []string{"10.0.0.0/16", "10.96.0.0/12", "fd00::/112"}},
		{"changed", func() { sink.Put(object("b", "172.16.0.0/16")) }, []string{"10.0.0.0/16", "10.96.0.0/12", "172.16.0.0/16"}},
		{"one gone", func() { sink.Drop(state.Name{Name: "a"}) }, []string{"172.16.0.0/16"}},
		{"all gone", func() { sink.Replace(nil) }, nil},
	} {
		step.do()
		if diff := cmp.Diff(sourcetest.Prefixes(step.want...), store.Environment().ServiceCIDRs, sourcetest.CompareValues); diff != "" {
			t.Errorf("%s: ranges (-want +got):\n%s", step.name, diff)
		}
	}
}

// TestSinkLooksAtEveryField: a change that the sink does not see would never reach the kernel.
func TestSinkLooksAtEveryField(t *testing.T) {
	c, into := convert.New(), New(state.NewStore())
	service, _ := c.Service(sourcetest.CompleteService())
	for path, changed := range fields.Each(*service) {
		if into.Services.equal(service, &changed) {
			t.Errorf("the sink ignores Service.%s", path)
		}
	}
	slice, _ := c.Slice(sourcetest.CompleteSlice())
	for path, changed := range fields.Each(*slice) {
		if into.Slices.equal(slice, &changed) != strings.HasPrefix(path, "Trigger") {
			t.Errorf("the sink ignores Slice.%s, or it does not ignore the trigger time", path)
		}
	}
	node, _ := c.Node(sourcetest.CompleteNode())
	for path, changed := range fields.Each(*node) {
		if into.Nodes.equal(node, &changed) {
			t.Errorf("the sink ignores Node.%s", path)
		}
	}
}
