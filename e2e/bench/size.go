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
	w, first, err := firstSync(path.Node, c)
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
	out.FirstSync, err = moreSyncs(c, first, syncRounds(services)-1)
	return out, err
}

func measureChanges(out *sizeResult, w *world, c *cluster, stage func(string), progress *measure.Progress) (err error) {
	stage("endpoint changes")
	out.Changes, err = endpointChanges(w, c, changeRounds, func(done int) { progress.Step(done, changeRounds) })
	if err != nil {
		return err
	}
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
func firstSync(ns *lab.Namespace, c *cluster) (*world, syncTimes, error) {
	w, err := newWorld(ns)
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

// moreSyncs repeats the first synchronization in fresh namespaces and takes the median of all.
func moreSyncs(c *cluster, first syncTimes, more int) (out syncResult, err error) {
	total, kernel := measure.Sample{first.total}, measure.Sample{first.kernel}
	for range more {
		t, err := syncOnce(c)
		if err != nil {
			return out, err
		}
		total, kernel = append(total, t.total), append(kernel, t.kernel)
	}
	return syncResult{
		Median: measure.Milliseconds(total.Median()), Kernel: measure.Milliseconds(kernel.Median()),
		Elements: first.elements, Bytes: first.bytes, N: len(total),
	}, nil
}

func syncOnce(c *cluster) (t syncTimes, err error) {
	// What earlier rounds left is collected now, and the kernel gets time to free their tables.
	runtime.GC()
	time.Sleep(500 * time.Millisecond)
	ns, err := lab.NewNamespace("bench")
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, ns.Close()) }()
	w, t, err := firstSync(ns, c)
	if err != nil {
		return t, err
	}
	return t, w.close(ns)
}
