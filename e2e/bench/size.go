package main

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// perService is the number of endpoints of each Service.
const perService = 10

// effort says how much is measured. Tests measure less than fullEffort.
type effort struct {
	syncs         int
	changeRounds  int
	serviceRounds int
	busyChanges   int
	burstChanges  int
	streamSeconds int
	largeChanges  int
	largeSyncs    int
	manyServices  int
}

// fullEffort is the effort at a size. First synchronizations of large sizes vary less and take longer.
func fullEffort(services int) effort {
	e := effort{
		syncs: 5, changeRounds: 150, serviceRounds: 60, busyChanges: 2000, burstChanges: 1000, streamSeconds: 8,
		largeChanges: 100, largeSyncs: 3, manyServices: 5000,
	}
	if services >= 50_000 {
		e.syncs = 3
	}
	return e
}

// sizeFormat is the form of the names of sizes.
const sizeFormat = "services=%d"

// sizeSuffix ends the names of all benchmarks of a size.
func sizeSuffix(services int) string { return fmt.Sprintf(sizeFormat, services) }

// measureSize measures everything at one size. One world serves all measurements that do not need a new one.
func measureSize(services int, e effort, out *measure.Lines, progress *measure.Progress) (err error) {
	at := "/" + sizeSuffix(services)
	progress.Stage("%s services: first sync", measure.Count(services))
	c := newCluster(services, perService)
	path, err := measure.NewPath("program")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, path.Close()) }()
	w, first, err := firstSync(path.Node, c, true)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close(path.Node)) }()
	out.Add("FirstSync"+at, 1, first.figures())
	if err := memory(out, at); err != nil {
		return err
	}
	progress.Stage("changes")
	if err := endpointChanges(w, c, e.changeRounds, out, at); err != nil {
		return err
	}
	if err := burst(w, c, e.burstChanges, out, at); err != nil {
		return err
	}
	stream(w, c, e.streamSeconds, out, at)
	if err := serviceChanges(w, c, e.serviceRounds, out, at); err != nil {
		return err
	}
	progress.Stage("connections through the proxy's rules, through one rule, and through none")
	if err := measure.Compare(path, netip.AddrPortFrom(serviceIP(0), 80), out, at); err != nil {
		return err
	}
	progress.Stage("first sync again, and changes without a pause")
	for range e.syncs - 1 {
		if err := runBenchmark(out, "FirstSync"+at, 1, firstSyncs(c)); err != nil {
			return err
		}
	}
	return runBenchmark(out, "EndpointReplacedBusy"+at, e.busyChanges, busyChanges(c))
}

// syncTimes is what one first synchronization took.
type syncTimes struct {
	total, kernel   time.Duration
	elements, bytes int
}

func (t *syncTimes) figures() measure.Figures {
	return measure.Figures{
		"ns/op": float64(t.total), "kernel-ns/op": float64(t.kernel),
		"elements/op": float64(t.elements), "wire-B/op": float64(t.bytes),
	}
}

// firstSync fills a new world and measures from "caches are complete" until the kernel has everything.
func firstSync(ns *lab.Namespace, c *cluster, gathers gathering) (*world, syncTimes, error) {
	w, err := newWorld(ns, gathers)
	if err != nil {
		return nil, syncTimes{}, err
	}
	c.fill(w.store)
	took, s, err := w.do(w.store.MarkSynced)
	if err != nil {
		return nil, syncTimes{}, errors.Join(fmt.Errorf("first sync: %w", err), w.close(ns))
	}
	return w, syncTimes{total: took, kernel: s.kernel, elements: s.added, bytes: s.bytes}, nil
}

// firstSyncs is a benchmark of first synchronizations, each in a new namespace. It reports means; the table shows the
// median of several lines.
func firstSyncs(c *cluster) benchmark {
	return func(b *testing.B) error {
		var sum syncTimes
		for b.Loop() {
			t, err := syncOnce(c, false, nothing)
			if err != nil {
				return err
			}
			sum.total, sum.kernel = sum.total+t.total, sum.kernel+t.kernel
			sum.elements, sum.bytes = t.elements, t.bytes
		}
		sum.total, sum.kernel = sum.total/time.Duration(b.N), sum.kernel/time.Duration(b.N)
		f := sum.figures()
		f["endpoints/op"] = float64(c.endpoints())
		reportFigures(b, f)
		return nil
	}
}

func nothing(*world) error { return nil }

// syncOnce makes a first synchronization in a new namespace, and calls then with the world. The caller has collected
// the garbage of earlier rounds, as testing.Benchmark does.
func syncOnce(c *cluster, gathers gathering, then func(*world) error) (t syncTimes, err error) {
	time.Sleep(500 * time.Millisecond) // in which the kernel frees the tables of earlier rounds
	ns, err := lab.NewNamespace("bench")
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	w, t, err := firstSync(ns, c, gathers)
	if err != nil {
		return t, err
	}
	return t, errors.Join(then(w), w.close(ns))
}
