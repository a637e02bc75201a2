package main

import (
	"errors"
	"fmt"
	"maps"
	"runtime/metrics"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// pause is the time before each change that is to meet an idle proxy: longer than --min-sync-period.
const pause = 12 * time.Millisecond

// changeKind is a kind of change: its name in tables and in JSON, and the name of its benchmark.
type changeKind struct{ row, benchmark string }

// changeKinds lists the kinds in the order of tables.
func changeKinds() []changeKind {
	return []changeKind{
		{"one endpoint replaced", "EndpointReplaced"},
		{"one endpoint added", "EndpointAdded"},
		{"one endpoint removed", "EndpointRemoved"},
		{"one Service with its endpoints added", "ServiceAdded"},
		{"one Service with its endpoints removed", "ServiceRemoved"},
	}
}

// recorder collects the measurements of one kind of change.
type recorder struct {
	total, kernel, user measure.Sample
	operations          int
	bytes               int
	passes              int
	allocs              uint64
}

// record makes a change that consists of one or more events, and measures it. Each event meets an idle proxy; the time
// of the change is the sum of the times of its events.
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

// allocations counts the heap objects allocated so far. Unlike runtime.ReadMemStats, and so unlike the timer of
// testing.B, it does not stop the program.
func allocations() uint64 {
	count := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(count)
	return count[0].Value.Uint64()
}

func (r *recorder) figures() measure.Figures {
	n := float64(max(len(r.total), 1))
	out := measure.Figures{
		"kernel-p50-ns":   float64(r.kernel.Median()),
		"user-p50-ns":     float64(r.user.Median()),
		"operations/op":   float64(r.operations) / n,
		"wire-B/op":       float64(r.bytes) / n,
		"objects/op":      float64(r.allocs) / n,
		"transactions/op": float64(r.passes) / n,
	}
	maps.Copy(out, r.total.Figures())
	return out
}

// endpointChanges replaces, removes and adds endpoints of Services all over the cluster, in turn. After each round it
// makes the least change of nf_tables, so that all four are measured on the same machine in the same state.
func endpointChanges(w *world, c *cluster, rounds int, out *measure.Lines, at string) (err error) {
	least, err := newLeast()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, least.close()) }()
	kinds := []struct {
		benchmark string
		next      func(int) *state.Slice
		recorder
	}{
		{benchmark: "EndpointReplaced", next: c.replaceOne},
		{benchmark: "EndpointRemoved", next: c.removeOne},
		{benchmark: "EndpointAdded", next: c.addOne},
	}
	for range rounds {
		target := c.pick()
		for k := range kinds {
			sl := kinds[k].next(target)
			if err := kinds[k].record(w, func() { w.store.SetSlice(sl, nil) }); err != nil {
				return fmt.Errorf("%s: %w", kinds[k].benchmark, err)
			}
		}
		if err := least.record(); err != nil {
			return err
		}
	}
	out.Add("LeastChange"+at, rounds, least.took.Figures())
	for k := range kinds {
		out.Add(kinds[k].benchmark+at, rounds, kinds[k].figures())
	}
	return nil
}

// serviceChanges adds and removes a Service with its slice, in turn. Each is two events, as they come from an API
// server.
func serviceChanges(w *world, c *cluster, rounds int, out *measure.Lines, at string) error {
	var add, remove recorder
	for i := range rounds {
		svc, sl := c.service(len(c.services)+i), c.slice(len(c.services)+i, perService)
		err := add.record(w, func() { w.store.SetService(svc, nil) }, func() { w.store.SetSlice(sl, nil) })
		if err != nil {
			return fmt.Errorf("add a Service: %w", err)
		}
		err = remove.record(w, func() { w.store.DeleteService(svc.Name) }, func() { w.store.DeleteSlice(sl.Name) })
		if err != nil {
			return fmt.Errorf("remove a Service: %w", err)
		}
	}
	out.Add("ServiceAdded"+at, rounds, add.figures())
	out.Add("ServiceRemoved"+at, rounds, remove.figures())
	return nil
}

// pausedChanges is a benchmark that replaces endpoints in a world of its own. Each change meets an idle proxy.
func pausedChanges(c *cluster, sync *syncTimes) benchmark {
	return func(b *testing.B) (err error) {
		*sync, err = syncOnce(c, true, func(w *world) error {
			var r recorder
			for b.Loop() {
				sl := c.replaceOne(c.pick())
				if err := r.record(w, func() { w.store.SetSlice(sl, nil) }); err != nil {
					return err
				}
			}
			reportFigures(b, r.figures())
			b.ReportMetric(float64(r.total.Mean()), "ns/op") // without the pauses
			return nil
		})
		return err
	}
}

// busyChanges is a benchmark that replaces endpoints without a pause, in a world of its own: what a change costs when
// neither the scheduler nor the processor's caches have turned to something else.
func busyChanges(c *cluster) benchmark {
	return func(b *testing.B) error {
		const gathers = false // the loop must not wait for further changes
		_, err := syncOnce(c, gathers, func(w *world) error {
			var sample measure.Sample
			for b.Loop() {
				sl := c.replaceOne(c.pick())
				took, _, err := w.do(func() { w.store.SetSlice(sl, nil) })
				if err != nil {
					return err
				}
				sample = append(sample, took)
			}
			reportFigures(b, sample.Figures())
			return nil
		})
		return err
	}
}

// burst replaces endpoints as a rollout does: one event for each, faster than the loop can follow.
func burst(w *world, c *cluster, n int, out *measure.Lines, at string) error {
	changes := make([]*state.Slice, n)
	for i := range changes {
		changes[i] = c.replaceOne(1 + i%(len(c.slices)-1))
	}
	time.Sleep(pause)
	start, elapsed, passes := time.Now(), time.Duration(0), 0
	for _, sl := range changes {
		w.store.SetSlice(sl, nil)
	}
	for idle := false; !idle; {
		select {
		case s := <-w.settled:
			passes += s.passes
			elapsed = s.at.Sub(start)
			if len(s.failures) > 0 {
				return fmt.Errorf("burst: %w", s.failures[0])
			}
		case <-time.After(5 * pause):
			idle = passes > 0
		}
	}
	out.Add("Burst"+at, 1, measure.Figures{
		"ns/op": float64(elapsed), "changes/op": float64(n), "transactions/op": float64(passes),
	})
	return nil
}
