package main

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
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

// TestMeasuredChanges makes every kind of change on a small cluster in the real kernel, and knows what they must be.
func TestMeasuredChanges(t *testing.T) {
	ns, err := lab.NewNamespace("bench-test")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	c := newCluster(20, perService)
	w, first, err := firstSync(ns, c, true)
	if err != nil {
		t.Fatal(err)
	}
	if first.elements < 20*(perService+2) || first.bytes == 0 || first.total < first.kernel {
		t.Errorf("first sync: %+v", first)
	}
	l, err := newLeast()
	if err != nil {
		t.Fatal(err)
	}
	got, err := endpointChanges(w, c, 2, l.record, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if q := l.took.Quantiles(); q.N != 2 || q.P50 <= 0 {
		t.Errorf("the least change: %+v", q)
	}
	if out, err := l.ns.Command("nft", "list", "ruleset"); err != nil || !strings.Contains(out, "10.0.0.1 : 10.0.0.2") {
		t.Errorf("the least table: %s, %v", out, err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	services, err := serviceChanges(w, c, 2, perService, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	if r := got[replaced]; r.Operations != 2 || r.Passes != 1 || r.N != 2 || r.P50 <= 0 || r.Kernel <= 0 || r.Kernel > r.P50 {
		t.Errorf("%s: %+v; want one element deleted and one added", replaced, r)
	}
	// An endpoint more or less is a slot, and another class for the pool.
	if r := got[added]; r.Operations != 3 {
		t.Errorf("%s: %+v; want a slot, and the pool's element replaced", added, r)
	}
	if r := services[serviceAdded]; r.Passes != 2 || r.Operations < perService+2 {
		t.Errorf("%s: %+v", serviceAdded, r)
	}
	if b, err := burst(w, c, 50); err != nil || b.Transactions < 1 || b.Transactions > 10 {
		t.Errorf("burst: %+v, %v; want a handful of transactions", b, err)
	}
	if err := w.close(ns); err != nil {
		t.Fatal(err)
	}
	if out, err := ns.Command("nft", "list", "tables"); err != nil || out != "" {
		t.Errorf("left behind: %q, %v", out, err)
	}
}

func TestReport(t *testing.T) {
	r := &result{Sizes: []sizeResult{
		{Services: 100, Changes: map[string]changeResult{replaced: {Quantiles: measure.Quantiles{P50: 0.2}}}},
		{Services: 50_000, Changes: map[string]changeResult{replaced: {Quantiles: measure.Quantiles{P50: 0.25}}}},
	}, Large: &largeResult{ManyServices: 5000}}
	got := report(r)
	for _, want := range []string{"50,000", "0.250 / 0 (×1.25)", "250,000 endpoints"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	var again result
	if err := json.Unmarshal(text, &again); err != nil || report(&again) != got {
		t.Errorf("JSON does not hold what the tables show: %v", err)
	}
}

func TestFlags(t *testing.T) {
	if o, err := parse([]string{"-sizes", "1000, 100"}); err != nil || !slices.Equal(o.sizes, []int{100, 1000}) {
		t.Errorf("%v, %v", o.sizes, err)
	}
	for _, bad := range []string{"", "ten", "1", "-5", "100,,200"} {
		if _, err := parse([]string{"-sizes", bad}); err == nil {
			t.Errorf("-sizes %q is accepted", bad)
		}
	}
}
