package main

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// How much is measured at each size.
const (
	perService    = 10
	changeRounds  = 150
	serviceRounds = 60
	burstSize     = 1000
	streamSeconds = 8
)

// syncRounds is how many first synchronizations a size gets; large ones vary less and take longer.
func syncRounds(services int) int {
	if services >= 50_000 {
		return 3
	}
	return 5
}

// measureSize measures everything at one size.
func measureSize(services int, progress *measure.Progress) (out sizeResult, err error) {
	out = sizeResult{Services: services, Endpoints: services * perService}
	name := measure.Count(services) + " services"
	progress.Stage("%s: first sync", name)
	c := newCluster(services, perService)
	path, err := measure.NewPath("program")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, path.Close()) }()
	w, first, err := firstSync(path.Node, c, true)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, w.close(path.Node)) }()
	if out.Memory, err = memory(os.Getpid()); err != nil {
		return out, err
	}
	if err := measureChanges(&out, w, c, func(stage string) { progress.Stage("%s: %s", name, stage) }, progress); err != nil {
		return out, err
	}
	progress.Stage("%s: connections", name)
	if out.Paths, err = measure.Compare(path, netip.AddrPortFrom(serviceIP(0), 80), func(done int) { progress.Step(done, measure.Rounds) }); err != nil {
		return out, err
	}
	progress.Stage("%s: first sync again", name)
	syncs := measure.Sample{first.total}
	kernel := measure.Sample{first.kernel}
	for i := range syncRounds(services) - 1 {
		then := nothing
		if i == 0 {
			then = func(w *world) error { out.Busy, err = busyChanges(w, c); return err }
		}
		t, err := syncOnce(c, false, then)
		if err != nil {
			return out, err
		}
		syncs, kernel = append(syncs, t.total), append(kernel, t.kernel)
	}
	out.FirstSync = syncResult{
		Median: measure.Milliseconds(syncs.Median()), Kernel: measure.Milliseconds(kernel.Median()),
		Elements: first.elements, Bytes: first.bytes, N: len(syncs),
	}
	return out, nil
}

func measureChanges(out *sizeResult, w *world, c *cluster, stage func(string), progress *measure.Progress) (err error) {
	stage("endpoint changes")
	l, err := newLeast()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	out.Changes, err = endpointChanges(w, c, changeRounds, l.record, func(done int) { progress.Step(done, changeRounds) })
	if err != nil {
		return err
	}
	out.Least = l.took.Quantiles()
	stage("a burst of changes")
	if out.Burst, err = burst(w, c, burstSize); err != nil {
		return err
	}
	stage(fmt.Sprintf("%d changes per second", streamRate))
	out.Load, err = stream(w, c, streamSeconds)
	if err != nil {
		return err
	}
	stage("Service changes")
	services, err := serviceChanges(w, c, serviceRounds, perService, func(done int) { progress.Step(done, serviceRounds) })
	maps.Copy(out.Changes, services)
	return err
}

// syncTimes is what one first synchronization took.
type syncTimes struct {
	total, kernel   time.Duration
	elements, bytes int
}

// firstSync fills a new world and measures from "caches are complete" on.
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
	return w, syncTimes{took, s.kernel, s.added, s.bytes}, nil
}

func nothing(*world) error { return nil }

// syncOnce makes a first synchronization in a fresh namespace and goes on with what it left.
func syncOnce(c *cluster, gathers gathering, then func(*world) error) (t syncTimes, err error) {
	// What earlier rounds left is collected now, and the kernel gets time to free their tables.
	runtime.GC()
	time.Sleep(500 * time.Millisecond)
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

// result is a single synchronization as a result.
func (t *syncTimes) result() syncResult {
	return syncResult{
		Median: measure.Milliseconds(t.total), Kernel: measure.Milliseconds(t.kernel), Elements: t.elements, Bytes: t.bytes, N: 1,
	}
}
