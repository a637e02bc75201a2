//go:build !nokernel

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// smallEffort measures everything, as little as possible.
func smallEffort() effort {
	return effort{
		syncs: 2, changeRounds: 2, serviceRounds: 2, busyChanges: 20, burstChanges: 50, streamSeconds: 1,
		largeChanges: 2, largeSyncs: 1, manyServices: 20,
	}
}

func progress(t *testing.T) *measure.Progress {
	return &measure.Progress{Out: t.Output(), Start: time.Now()}
}

// TestMeasureSize measures a small cluster in the real kernel. Every figure of the tables must be there, and changes
// must need the known number of element operations.
func TestMeasureSize(t *testing.T) {
	const services = 20
	l := &measure.Lines{}
	if err := measureSize(services, smallEffort(), l, progress(t)); err != nil {
		t.Fatal(err)
	}
	report(l, options{sizes: measure.Sizes{services}})
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	of := func(benchmark, unit string) float64 { return l.Median(benchmark+"/"+sizeSuffix(services), unit) }
	times := func(benchmark string) int { return l.Iterations(benchmark + "/" + sizeSuffix(services)) }
	total, kernel := of("FirstSync", "ns/op"), of("FirstSync", "kernel-ns/op")
	if of("FirstSync", "elements/op") < services*(perService+2) || of("FirstSync", "wire-B/op") == 0 ||
		total < kernel || kernel <= 0 || times("FirstSync") != 2 {
		t.Errorf("first sync: %v ns, in the kernel %v", total, kernel)
	}
	replaced := func(unit string) float64 { return of("EndpointReplaced", unit) }
	if replaced("operations/op") != 2 || replaced("transactions/op") != 1 || times("EndpointReplaced") != 2 ||
		replaced("kernel-p50-ns") <= 0 || replaced("kernel-p50-ns") > replaced("p50-ns") {
		t.Errorf("one endpoint replaced: %v operations; want one element deleted and one added", replaced("operations/op"))
	}
	// One endpoint more is another slot, and the pool moves to another class.
	if n := of("EndpointAdded", "operations/op"); n != 3 {
		t.Errorf("one endpoint added: %v operations; want a slot, and the pool's element replaced", n)
	}
	if n := of("ServiceAdded", "operations/op"); of("ServiceAdded", "transactions/op") != 2 || n < perService+2 {
		t.Errorf("one Service added: %v operations", n)
	}
	if times("LeastChange") != 2 || of("LeastChange", "p50-ns") <= 0 || times("EndpointReplacedBusy") != 20 || of("EndpointReplacedBusy", "p50-ns") <= 0 {
		t.Error("the least change, or changes without a pause")
	}
	// How many changes share a transaction, and how many come in a second, depends on what else the machine has to do.
	if n := of("Burst", "transactions/op"); of("Burst", "changes/op") != 50 || n < 1 || n > 50 || of("Burst", "ns/op") <= 0 {
		t.Errorf("burst: %v transactions; want no more transactions than changes", n)
	}
	if of("Stream", "changes/sec") <= 0 || of("Stream", "cpu-%") <= 0 || of("Memory", "heap-B") <= 0 || of("Memory", "peak-B") < of("Memory", "resident-B") {
		t.Error("stream or memory")
	}
	if of("Connections/path=proxy", "p50-ns") <= 0 || of("Connections/path=no-rule", "connections/sec") <= 0 || of("Connections/path=proxy", "to-one-rule") <= 0 {
		t.Error("connections")
	}
}

// TestMeasureLarge expects every figure of the table of large Services.
func TestMeasureLarge(t *testing.T) {
	e, l := smallEffort(), &measure.Lines{}
	if err := measureLarge(e, l, progress(t)); err != nil {
		t.Fatal(err)
	}
	largeTable(l)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	for name, least := range map[string]int{bigCase: bigEndpoints, nodePortCase: nodePortCount * (perService + 2), manyCase: e.manyServices * manyEach} {
		if n := l.Count("FirstSync/"+name, "elements/op"); n < least {
			t.Errorf("%s: %d elements, want at least %d", name, n, least)
		}
	}
	if l.Iterations("EndpointReplaced/"+bigCase) != e.largeChanges || l.Median("EndpointReplaced/"+bigCase, "p50-ns") <= 0 {
		t.Errorf("changes of one large Service: %+v", l)
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
