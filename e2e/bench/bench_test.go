package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"regexp"
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

// smallEffort measures everything, as little as possible.
func smallEffort() effort {
	return effort{
		syncs: 2, changeRounds: 2, serviceRounds: 2, busyChanges: 20, burstChanges: 50, streamSeconds: 1,
		largeChanges: 2, largeSyncs: 1, manyServices: 20,
	}
}

// measured runs measurements and returns what their lines say.
func measured(t *testing.T, suffix string, run func(*output, *measure.Progress) error) *figures {
	t.Helper()
	var lines bytes.Buffer
	if err := run(newOutput(&lines, suffix), measure.NewProgress(os.Stderr)); err != nil {
		t.Fatal(err)
	}
	var f figures
	if err := f.read(lines.Bytes(), measure.ThisMachine()); err != nil {
		t.Fatal(err)
	}
	return &f
}

// TestMeasureSize measures a small cluster in the real kernel. Every figure of the tables must be there, and changes
// must need the known number of element operations.
func TestMeasureSize(t *testing.T) {
	const services = 20
	f := measured(t, sizeSuffix(services), func(out *output, p *measure.Progress) error {
		return measureSize(services, smallEffort(), out, p)
	})
	r := f.size(services)
	if err := f.err(); err != nil {
		t.Fatal(err)
	}
	s := r.FirstSync
	if s.Elements < services*(perService+2) || s.Bytes == 0 || s.Median < s.Kernel || s.Kernel <= 0 || s.N != 2 {
		t.Errorf("first sync: %+v", s)
	}
	c := r.Changes["one endpoint replaced"]
	if c.Operations != 2 || c.Passes != 1 || c.N != 2 || c.P50 <= 0 || c.Kernel <= 0 || c.Kernel > c.P50 {
		t.Errorf("one endpoint replaced: %+v; want one element deleted and one added", c)
	}
	// One endpoint more is another slot, and the pool moves to another class.
	if c := r.Changes["one endpoint added"]; c.Operations != 3 {
		t.Errorf("one endpoint added: %+v; want a slot, and the pool's element replaced", c)
	}
	if c := r.Changes["one Service with its endpoints added"]; c.Passes != 2 || c.Operations < perService+2 {
		t.Errorf("one Service added: %+v", c)
	}
	if r.Least.N != 2 || r.Least.P50 <= 0 || r.Busy.N != 20 || r.Busy.P50 <= 0 {
		t.Errorf("least change: %+v; changes without a pause: %+v", r.Least, r.Busy)
	}
	if b := r.Burst; b.Changes != 50 || b.Transactions < 1 || b.Transactions > 10 || b.Elapsed <= 0 {
		t.Errorf("burst: %+v; want a handful of transactions", b)
	}
	if r.Load.PerSecond < streamRate/2 || r.Load.CPU <= 0 || r.Memory.Heap <= 0 || r.Memory.Peak < r.Memory.RSS {
		t.Errorf("stream: %+v; memory: %+v", r.Load, r.Memory)
	}
	if r.Paths.Proxy.P50 <= 0 || r.Paths.NoRule.Rate <= 0 || r.Paths.ToRule <= 0 {
		t.Errorf("connections: %+v", r.Paths)
	}
}

// TestMeasureLarge expects every figure of the table of large Services.
func TestMeasureLarge(t *testing.T) {
	e := smallEffort()
	f := measured(t, "", func(out *output, p *measure.Progress) error { return measureLarge(e, out, p) })
	r := f.large(e.manyServices)
	if err := f.err(); err != nil {
		t.Fatal(err)
	}
	if r.BigService.FirstSync.Elements < bigEndpoints || r.BigService.Change.N != e.largeChanges || r.BigService.Change.P50 <= 0 {
		t.Errorf("one large Service: %+v", r.BigService)
	}
	if r.NodePorts.FirstSync.Elements < nodePortCount*(perService+2) || r.ManyPods.Elements < e.manyServices*manyEach {
		t.Errorf("node ports: %+v; many endpoints: %+v", r.NodePorts, r.ManyPods)
	}
}

// TestLeftBehind expects the least change in its table, and no tables after the world is closed.
func TestLeftBehind(t *testing.T) {
	l, err := newLeast()
	if err != nil {
		t.Fatal(err)
	}
	if err := l.record(); err != nil {
		t.Fatal(err)
	}
	if out, err := l.ns.Command("nft", "list", "ruleset"); err != nil || !strings.Contains(out, "10.0.0.1 : 10.0.0.1") {
		t.Errorf("the table of the least change: %s, %v", out, err)
	}
	if err := l.close(); err != nil {
		t.Error(err)
	}
	ns, err := lab.NewNamespace("bench-test")
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	w, _, err := firstSync(ns, newCluster(2, 1), true)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.close(ns); err != nil {
		t.Fatal(err)
	}
	if out, err := ns.Command("nft", "list", "tables"); err != nil || out != "" {
		t.Errorf("left behind: %q, %v", out, err)
	}
}

// TestFigures expects medians over all lines of a name, in the units in which the lines were written, and the same
// lines when they are saved for benchstat.
func TestFigures(t *testing.T) {
	lines := func(values ...float64) *figures {
		return measured(t, "services=100", func(out *output, _ *measure.Progress) error {
			for _, v := range values {
				if err := out.write("FirstSync", 2, measurements{"ns/op": v, "elements/op": v + 0.5}); err != nil {
					return err
				}
			}
			return out.write("Other", 1, measurements{"ns/op": 7})
		})
	}
	f := lines(5e6, 1e6, 3e6)
	const name = "FirstSync/services=100"
	if ms, elements := f.milliseconds(name, "ns/op"), f.median(name, "elements/op"); ms != 3 || elements != 3e6+0.5 {
		t.Errorf("medians %v ms and %v, want 3 ms and 3000000.5", ms, elements)
	}
	if n := f.iterations(name); n != 6 {
		t.Errorf("%d iterations, want 6", n)
	}
	if err := f.err(); err != nil {
		t.Error(err)
	}
	if f.median(name, "B/op"); f.err() == nil {
		t.Error("a figure that nothing has measured is not an error")
	}
	var saved bytes.Buffer
	if err := f.write(&saved); err != nil {
		t.Fatal(err)
	}
	text := saved.String()
	if !strings.Contains(text, "\nBenchmarkFirstSync/services=100 2 5.0000005e+06 elements/op 5e+06 ns/op\n") ||
		!strings.HasPrefix(text, "cpu: ") {
		t.Errorf("saved for benchstat:\n%s", text)
	}
	var again figures
	if err := again.read(saved.Bytes(), measure.ThisMachine()); err != nil || len(again.lines) != 4 {
		t.Errorf("read again: %d lines, %v", len(again.lines), err)
	}
}

// TestRun expects the error of a benchmark that fails, and the iterations of one that does not.
func TestRun(t *testing.T) {
	var lines bytes.Buffer
	out := newOutput(&lines, "x=1")
	failure := errors.New("it failed")
	if err := out.run("Bad", 5, func(*testing.B) error { return failure }); !errors.Is(err, failure) || lines.Len() > 0 {
		t.Errorf("error %v, lines %q", err, lines.String())
	}
	n := 0
	good := func(b *testing.B) error {
		for b.Loop() {
			n++
		}
		b.ReportMetric(42, "x")
		return nil
	}
	err := out.run("Good", 5, good)
	line := regexp.MustCompile(`^BenchmarkGood/x=1 5 [0-9.]+ ns/op 42 x\n$`)
	if err != nil || n != 5 || !line.MatchString(lines.String()) {
		t.Errorf("error %v after %d iterations, lines %q", err, n, lines.String())
	}
}

func TestReport(t *testing.T) {
	r := &result{Sizes: []sizeResult{
		{Services: 100, Changes: map[string]changeResult{changeKinds()[0].row: {Quantiles: measure.Quantiles{P50: 0.2}}}},
		{Services: 50_000, Changes: map[string]changeResult{changeKinds()[0].row: {Quantiles: measure.Quantiles{P50: 0.25}}}},
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
	if _, err := parse([]string{"-count", "0"}); err == nil {
		t.Error("-count 0 is accepted")
	}
	for _, bad := range []string{"", "ten", "1", "-5", "100,,200"} {
		if _, err := parse([]string{"-sizes", bad}); err == nil {
			t.Errorf("-sizes %q is accepted", bad)
		}
	}
}
