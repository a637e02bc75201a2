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
