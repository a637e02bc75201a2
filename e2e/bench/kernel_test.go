//go:build !nokernel

package main

import (
	"strings"
	"testing"

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
	// How many changes share a transaction, and how many come in a second, depends on what else the machine has to do.
	if b := r.Burst; b.Changes != 50 || b.Transactions < 1 || b.Transactions > b.Changes || b.Elapsed <= 0 {
		t.Errorf("burst: %+v; want no more transactions than changes", b)
	}
	if r.Load.PerSecond <= 0 || r.Load.CPU <= 0 || r.Memory.Heap <= 0 || r.Memory.Peak < r.Memory.RSS {
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
