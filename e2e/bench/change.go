package main

import (
	"fmt"
	"runtime/metrics"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// pause lies between two changes that are to meet an idle proxy: longer than --min-sync-period.
const pause = 12 * time.Millisecond

// The kinds of changes.
const (
	replaced       = "one endpoint replaced"
	added          = "one endpoint added"
	removed        = "one endpoint removed"
	serviceAdded   = "one Service with its endpoints added"
	serviceRemoved = "one Service with its endpoints removed"
)

// changeKinds lists them in the order of tables.
func changeKinds() []string { return []string{replaced, added, removed, serviceAdded, serviceRemoved} }

// recorder collects measurements of one kind of change.
type recorder struct {
	total, kernel, user measure.Sample
	operations          int
	bytes               int
	passes              int
	allocs              uint64
}

// record makes a change of one or more events and notes what it took. Each event meets an idle proxy; the time of the
// change is the sum of theirs.
func (r *recorder) record(w *world, events ...func()) error {
	var total, kernel time.Duration
	for _, event := range events {
		time.Sleep(pause)
		w.drain()
		before := allocations()
		took, s, err := w.do(event)
		r.allocs += allocations() - before
		if err != nil {
			return err
		}
		total, kernel = total+took, kernel+s.kernel
		r.operations += s.added + s.deleted
		r.bytes += s.bytes
		r.passes += s.passes
	}
	r.total, r.kernel, r.user = append(r.total, total), append(r.kernel, kernel), append(r.user, total-kernel)
	return nil
}

// allocations counts objects on the heap so far, without stopping the program as runtime.ReadMemStats does.
func allocations() uint64 {
	count := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(count)
	return count[0].Value.Uint64()
}

func (r *recorder) result() changeResult {
	n := float64(max(len(r.total), 1))
	return changeResult{
		Quantiles:  r.total.Quantiles(),
		Kernel:     measure.Milliseconds(r.kernel.Median()),
		User:       measure.Milliseconds(r.user.Median()),
		Operations: float64(r.operations) / n,
		Bytes:      float64(r.bytes) / n,
		Allocs:     float64(r.allocs) / n,
		Passes:     float64(r.passes) / n,
	}
}

// endpointChanges replaces, removes and adds endpoints of Services all over the cluster, in turn; between them something
// else is measured, on the same machine in the same state.
func endpointChanges(w *world, c *cluster, rounds int, between func() error, step func(done int)) (map[string]changeResult, error) {
	kinds := map[string]*recorder{replaced: {}, removed: {}, added: {}}
	for i := range rounds {
		at := c.pick()
		for _, change := range []struct {
			kind string
			next func(int) *state.Slice
		}{{replaced, c.replaceOne}, {removed, c.removeOne}, {added, c.addOne}} {
			sl := change.next(at)
			if err := kinds[change.kind].record(w, func() { w.store.SetSlice(sl, nil) }); err != nil {
				return nil, fmt.Errorf("%s: %w", change.kind, err)
			}
		}
		if err := between(); err != nil {
			return nil, err
		}
		step(i)
	}
	return map[string]changeResult{replaced: kinds[replaced].result(), removed: kinds[removed].result(), added: kinds[added].result()}, nil
}

// serviceChanges adds and removes a Service with its slice: two events, which come from an API server one after the other.
func serviceChanges(w *world, c *cluster, rounds, endpoints int, step func(done int)) (map[string]changeResult, error) {
	var add, remove recorder
	for i := range rounds {
		svc, sl := c.service(len(c.services)+i), c.slice(len(c.services)+i, endpoints)
		if err := add.record(w, func() { w.store.SetService(svc, nil) }, func() { w.store.SetSlice(sl, nil) }); err != nil {
			return nil, fmt.Errorf("%s: %w", serviceAdded, err)
		}
		if err := remove.record(w, func() { w.store.DeleteService(svc.Name) }, func() { w.store.DeleteSlice(sl.Name) }); err != nil {
			return nil, fmt.Errorf("%s: %w", serviceRemoved, err)
		}
		step(i)
	}
	return map[string]changeResult{serviceAdded: add.result(), serviceRemoved: remove.result()}, nil
}

// busyRounds is how many changes are made without a pause.
const busyRounds = 2000

// busyChanges replaces endpoints one after the other, as soon as the kernel has the one before: what a change costs when
// neither the scheduler nor the processor's caches have turned to something else. The loop must not gather.
func busyChanges(w *world, c *cluster) (measure.Quantiles, error) {
	var sample measure.Sample
	for range busyRounds {
		sl := c.replaceOne(c.pick())
		took, _, err := w.do(func() { w.store.SetSlice(sl, nil) })
		if err != nil {
			return measure.Quantiles{}, err
		}
		sample = append(sample, took)
	}
	return sample.Quantiles(), nil
}

// burst replaces endpoints as a rollout does, one event for each, faster than the loop can follow.
func burst(w *world, c *cluster, n int) (burstResult, error) {
	changes := make([]*state.Slice, n)
	for i := range changes {
		changes[i] = c.replaceOne(1 + i%(len(c.slices)-1))
	}
	time.Sleep(pause)
	start, out := time.Now(), burstResult{Changes: n}
	for _, sl := range changes {
		w.store.SetSlice(sl, nil)
	}
	for {
		select {
		case s := <-w.settled:
			out.Transactions += s.passes
			out.Elapsed = measure.Milliseconds(s.at.Sub(start))
			if len(s.failures) > 0 {
				return out, fmt.Errorf("burst: %w", s.failures[0])
			}
		case <-time.After(5 * pause): // no more to come
			return out, nil
		}
	}
}
