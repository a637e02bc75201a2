package main

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func TestClusterHasNoAddressTwice(t *testing.T) {
	c := newCluster(70_000, 3) // more than 16 bits of cluster IPs
	seen := map[netip.Addr]bool{}
	note := func(a netip.Addr) {
		if seen[a] {
			t.Fatalf("%s occurs twice", a)
		}
		seen[a] = true
	}
	pods, services := netip.MustParsePrefix(podRange), netip.MustParsePrefix("10.96.0.0/12")
	for i, svc := range c.services {
		note(svc.ClusterIPs[0])
		if !services.Contains(svc.ClusterIPs[0]) {
			t.Fatalf("cluster IP %s is not in %s", svc.ClusterIPs[0], services)
		}
		for _, e := range c.slices[i].Endpoints {
			note(e.Addr)
			if i > 0 && !pods.Contains(e.Addr) {
				t.Fatalf("pod %s is not in %s", e.Addr, pods)
			}
		}
	}
}

func TestChangesLeaveOldSlicesAlone(t *testing.T) {
	c := newCluster(3, 4)
	before := slices.Clone(c.slices[1].Endpoints)
	old := c.slices[1]
	for name, change := range map[string]struct {
		next func(int) *state.Slice
		want int
	}{"replaced": {c.replaceOne, 4}, "removed": {c.removeOne, 3}, "added": {c.addOne, 5}} {
		c.slices[1] = old
		if got := change.next(1); len(got.Endpoints) != change.want || got == old {
			t.Errorf("%s: %d endpoints, want %d in a new slice", name, len(got.Endpoints), change.want)
		}
		if !slices.Equal(old.Endpoints, before) {
			t.Fatalf("%s: the slice in the store was changed", name)
		}
	}
}

// TestRun expects the error of a benchmark that fails, and the iterations of one that does not.
func TestRun(t *testing.T) {
	out := &measure.Lines{}
	failure := errors.New("it failed")
	if err := runBenchmark(out, "Bad", 5, func(*testing.B) error { return failure }); !errors.Is(err, failure) || out.Has("Bad") {
		t.Errorf("error %v, a line: %v", err, out.Has("Bad"))
	}
	n := 0
	good := func(b *testing.B) error {
		for b.Loop() {
			n++
		}
		b.ReportMetric(42, "x")
		return nil
	}
	err := runBenchmark(out, "Good/x=1", 5, good)
	if err != nil || n != 5 || out.Iterations("Good/x=1") != 5 || out.Median("Good/x=1", "x") != 42 || out.Median("Good/x=1", "ns/op") <= 0 {
		t.Errorf("error %v after %d iterations, line %+v", err, n, out)
	}
}

func TestReport(t *testing.T) {
	l := &measure.Lines{}
	l.Add("EndpointReplaced/services=100", 3, measure.Figures{"p50-ns": 0.2e6})
	l.Add("EndpointReplaced/services=50000", 3, measure.Figures{"p50-ns": 0.25e6})
	l.Add("FirstSync/"+manyCase, 1, measure.Figures{"endpoints/op": 250_000, "ns/op": 1e9})
	got := report(l, options{sizes: measure.Sizes{100, 50_000}, large: true})
	for _, want := range []string{"50,000", "0.200 / 0 ", "0.250 / 0 (×1.25)", "5,000 Services, 250,000 endpoints | 1,000 "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if l.Err() == nil {
		t.Error("a table that needs figures that nothing has measured is not an error")
	}
}

func TestFlags(t *testing.T) {
	o, err := parse([]string{"-sizes", "1000, 100"})
	if err != nil || !slices.Equal(o.sizes, []int{100, 1000}) || !slices.Equal(o.parts(), []string{"services=100", "services=1000", largePart}) {
		t.Errorf("%v, %v", o, err)
	}
	if err := measurePart("service", nil, nil); err == nil {
		t.Error("-part service is accepted")
	}
	if _, err := parse([]string{"-count", "0"}); err == nil {
		t.Error("-count 0 is accepted")
	}
	for _, bad := range []string{"", "ten", "1", "-5", "100,,200"} {
		if _, err := parse([]string{"-sizes", bad}); err == nil {
			t.Errorf("-sizes %q is accepted", bad)
		}
	}
}
