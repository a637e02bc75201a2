//go:build !nokernel

package bench

import (
	"flag"
	"net"
	"net/netip"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/proxier/state"
)

var sizes = flag.String("sizes", "100,1000,10000,50000", "numbers of Services with 10 endpoints each, separated by commas")

// The names of the clusters with large Services in benchmarks.
const (
	bigCase      = "case=one-service"
	nodePortCase = "case=node-ports"
	manyCase     = "case=many-endpoints"
)

// atSizes runs a benchmark at all sizes.
func atSizes(b *testing.B, run func(*testing.B, *cluster)) {
	for text := range strings.SplitSeq(*sizes, ",") {
		services, err := strconv.Atoi(text)
		if err != nil || services < 2 {
			b.Fatalf("-sizes: %q is no number of Services", text)
		}
		b.Run("services="+text, func(b *testing.B) { run(b, newCluster(services, perService)) })
	}
}

// report hands figures to a benchmark.
func report(b *testing.B, f measure.Figures) {
	for unit, value := range f {
		b.ReportMetric(value, unit)
	}
}

// BenchmarkFirstSync makes first synchronizations, each in a new namespace, and reports means. It is the first benchmark,
// because memory is that of the whole process: "make bench" starts one for each size.
func BenchmarkFirstSync(b *testing.B) {
	atSizes(b, firstSyncs)
	b.Run(manyCase, func(b *testing.B) { firstSyncs(b, newCluster(manyServices, manyEach)) })
}

func firstSyncs(b *testing.B, c *cluster) {
	var sum syncTimes
	var held measure.Figures
	for b.Loop() {
		t := inWorld(b, c, true, func(*world) {
			if held == nil {
				held = memory(b)
			}
		})
		sum.total, sum.kernel = sum.total+t.total, sum.kernel+t.kernel
		sum.elements, sum.bytes = t.elements, t.bytes
	}
	n := time.Duration(b.N)
	report(b, measure.Figures{
		"ns/op": float64(sum.total / n), "kernel-ns/op": float64(sum.kernel / n), "endpoints/op": float64(c.endpoints()),
		"elements/op": float64(sum.elements), "wire-B/op": float64(sum.bytes),
	})
	report(b, held)
}

// memory measures this process after a first synchronization, which is the state of the daemon at that moment. Memory
// that the runtime has not returned to the kernel counts as resident.
func memory(b *testing.B) measure.Figures {
	b.Helper()
	p, err := measure.Inspect(os.Getpid())
	lab.Must(b, err)
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return measure.Figures{"resident-B": float64(p.RSS), "peak-B": float64(p.Peak), "heap-B": float64(m.HeapAlloc)}
}

// BenchmarkFirstAnswer makes first synchronizations on a node that forwards packets. A client connects to default/kubernetes again and
// again until that answers. Another program changes nf_tables every millisecond; the longest such change is reported.
func BenchmarkFirstAnswer(b *testing.B) {
	atSizes(b, func(b *testing.B, c *cluster) {
		c.services[0].Name = state.Name{Namespace: "default", Name: "kubernetes"}
		c.slices[0].Service = c.services[0].Name
		var answered, total measure.Sample
		var longest time.Duration
		for b.Loop() {
			a, took, l := firstAnswer(b, c)
			answered, total, longest = append(answered, a), append(total, took), max(longest, l)
		}
		f := measure.Figures{"longest-change-ns": float64(longest)}
		answered.Report(f, "answer-")
		total.Report(f, "sync-")
		report(b, f)
	})
}

func firstAnswer(b *testing.B, c *cluster) (answered, took, longest time.Duration) {
	b.Helper()
	time.Sleep(500 * time.Millisecond) // in which the kernel frees the tables of earlier rounds
	path := measure.NewPath(b)
	w, err := newWorld(path.Node, true)
	lab.Must(b, err)
	c.fill(w.store)
	l := leastIn(b, path.Node.Namespace)
	var others sync.WaitGroup
	synced := make(chan struct{})
	start := time.Now()
	others.Go(func() {
		for {
			select {
			case <-synced:
				return
			case <-time.After(time.Millisecond):
				l.change(b)
			}
		}
	})
	others.Go(func() {
		lab.Must(b, path.Client.Do(func() error {
			d := net.Dialer{Timeout: 20 * time.Millisecond}
			for answered == 0 {
				if conn, err := d.DialContext(b.Context(), "tcp", netip.AddrPortFrom(serviceIP(0), 80).String()); err == nil {
					answered = time.Since(start)
					lab.Must(b, conn.Close())
				}
				time.Sleep(time.Millisecond)
			}
			return nil
		}))
	})
	took, _ = w.do(b, w.store.MarkSynced)
	close(synced)
	others.Wait()
	lab.Must(b, w.close(path.Node))
	return answered, took, slices.Max(l.took)
}

// pause is the time before each change that is to meet an idle proxy: longer than --min-sync-period.
const pause = 12 * time.Millisecond

// idle waits until the proxy is idle.
func idle() { time.Sleep(pause) }

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
func (r *recorder) record(b *testing.B, w *world, events ...func()) {
	b.Helper()
	var total, kernel time.Duration
	for _, event := range events {
		idle()
		w.drain()
		before := allocations()
		took, s := w.do(b, event)
		r.allocs += allocations() - before
		total, kernel = total+took, kernel+s.kernel
		r.operations += s.added + s.deleted
		r.bytes += s.bytes
		r.passes += s.passes
	}
	r.total, r.kernel, r.user = append(r.total, total), append(r.kernel, kernel), append(r.user, total-kernel)
}

// allocations counts the heap objects allocated so far. Unlike runtime.ReadMemStats, and so unlike the timer of
// testing.B, it does not stop the program.
func allocations() uint64 {
	count := []metrics.Sample{{Name: "/gc/heap/allocs:objects"}}
	metrics.Read(count)
	return count[0].Value.Uint64()
}

// report reports the figures of a kind. The time of the benchmark itself has the pauses, and says nothing.
func (r *recorder) report(b *testing.B, kind string) {
	n := float64(len(r.total))
	f := measure.Figures{
		kind + "kernel-p50-ns":   float64(r.kernel.Median()),
		kind + "user-p50-ns":     float64(r.user.Median()),
		kind + "operations/op":   float64(r.operations) / n,
		kind + "wire-B/op":       float64(r.bytes) / n,
		kind + "objects/op":      float64(r.allocs) / n,
		kind + "transactions/op": float64(r.passes) / n,
		"ns/op":                  0,
	}
	r.total.Report(f, kind)
	report(b, f)
}

// BenchmarkEndpoint replaces, removes and adds endpoints of Services all over the cluster, in turn. After each round it
// makes the least change of nf_tables, so that all four are measured on the same machine in the same state.
func BenchmarkEndpoint(b *testing.B) {
	atSizes(b, func(b *testing.B, c *cluster) {
		inWorld(b, c, true, func(w *world) {
			least := newLeast(b)
			var replaced, removed, added recorder
			for b.Loop() {
				target := c.pick()
				sl := c.replaceOne(target)
				replaced.record(b, w, func() { w.store.SetSlice(sl, nil) })
				sl = c.removeOne(target)
				removed.record(b, w, func() { w.store.SetSlice(sl, nil) })
				sl = c.addOne(target)
				added.record(b, w, func() { w.store.SetSlice(sl, nil) })
				least.record(b)
			}
			replaced.report(b, "replaced-")
			removed.report(b, "removed-")
			added.report(b, "added-")
			f := measure.Figures{}
			least.took.Report(f, "least-")
			report(b, f)
		})
	})
}

// BenchmarkService adds and removes a Service with its slice, in turn. Each is two events, as they come from an API
// server.
func BenchmarkService(b *testing.B) {
	atSizes(b, func(b *testing.B, c *cluster) {
		inWorld(b, c, true, func(w *world) {
			var added, removed recorder
			for i := len(c.services); b.Loop(); i++ {
				svc, sl := c.service(i), c.slice(i, perService)
				added.record(b, w, func() { w.store.SetService(svc, nil) }, func() { w.store.SetSlice(sl, nil) })
				removed.record(b, w, func() { w.store.DeleteService(svc.Name) }, func() { w.store.DeleteSlice(sl.Name) })
			}
			added.report(b, "added-")
			removed.report(b, "removed-")
		})
	})
}

// BenchmarkEndpointReplaced replaces endpoints of large Services. Each change meets an idle proxy.
func BenchmarkEndpointReplaced(b *testing.B) {
	for name, newOf := range map[string]func() *cluster{bigCase: newBigCluster, nodePortCase: newNodePortCluster} {
		b.Run(name, func(b *testing.B) {
			c := newOf()
			var r recorder
			t := inWorld(b, c, true, func(w *world) {
				for b.Loop() {
					sl := c.replaceOne(c.pick())
					r.record(b, w, func() { w.store.SetSlice(sl, nil) })
				}
			})
			r.report(b, "")
			report(b, measure.Figures{"first-sync-ns": float64(t.total), "first-sync-elements": float64(t.elements)})
		})
	}
}

// BenchmarkEndpointReplacedBusy replaces endpoints without a pause: what a change costs when neither the scheduler nor the
// processor's caches have turned to something else.
func BenchmarkEndpointReplacedBusy(b *testing.B) {
	atSizes(b, busyChanges)
	b.Run(bigCase, func(b *testing.B) { busyChanges(b, newBigCluster()) })
}

func busyChanges(b *testing.B, c *cluster) {
	const gathers = false // the loop must not wait for further changes
	inWorld(b, c, gathers, func(w *world) {
		var sample measure.Sample
		for b.Loop() {
			sl := c.replaceOne(c.pick())
			took, _ := w.do(b, func() { w.store.SetSlice(sl, nil) })
			sample = append(sample, took)
		}
		f := measure.Figures{}
		sample.Report(f, "")
		report(b, f)
	})
}

// burstChanges is the number of changes in a burst.
const burstChanges = 1000

// BenchmarkBurst replaces endpoints as a rollout does: one event for each, faster than the loop can follow.
func BenchmarkBurst(b *testing.B) {
	atSizes(b, func(b *testing.B, c *cluster) {
		inWorld(b, c, true, func(w *world) {
			var took time.Duration
			passes := 0
			for b.Loop() {
				t, p := burst(b, w, c)
				took, passes = took+t, passes+p
			}
			n := float64(b.N)
			report(b, measure.Figures{
				"ns/op": float64(took) / n, "changes/op": burstChanges, "transactions/op": float64(passes) / n,
			})
		})
	})
}

func burst(b *testing.B, w *world, c *cluster) (took time.Duration, passes int) {
	b.Helper()
	changes := make([]*state.Slice, burstChanges)
	for i := range changes {
		changes[i] = c.replaceOne(1 + i%(len(c.slices)-1))
	}
	idle()
	start := time.Now()
	for _, sl := range changes {
		w.store.SetSlice(sl, nil)
	}
	for {
		select {
		case s := <-w.settled:
			passes += s.passes
			took = s.at.Sub(start)
			lab.Must(b, s.failures...)
		case <-time.After(5 * pause):
			if passes > 0 {
				return took, passes
			}
		}
	}
}

// streamRate is the number of changes per second of a busy cluster.
const streamRate = 100

// BenchmarkStream writes changes at a steady rate and measures the CPU time of the whole process: the store, the loop, the
// engine, the kernel's share in system calls, garbage collection, and the small share of the benchmark itself.
func BenchmarkStream(b *testing.B) {
	atSizes(b, func(b *testing.B, c *cluster) {
		inWorld(b, c, true, func(w *world) {
			w.drain()
			before, start := cpuTime(), time.Now()
			tick := time.NewTicker(time.Second / streamRate)
			defer tick.Stop()
			passes := 0
			for b.Loop() {
				<-tick.C
				w.store.SetSlice(c.replaceOne(c.pick()), nil)
				passes += w.drain()
			}
			used, elapsed := (cpuTime() - before).Seconds(), time.Since(start).Seconds()
			report(b, measure.Figures{
				"cpu-%": 100 * used / elapsed, "changes/sec": float64(b.N) / elapsed, "transactions/sec": float64(passes) / elapsed,
			})
		})
	})
}

// cpuTime is the CPU time of this process so far, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkConnections opens connections through the proxy's rules, through one rule, and through none.
func BenchmarkConnections(b *testing.B) {
	atSizes(b, func(b *testing.B, c *cluster) {
		path := measure.NewPath(b)
		w, _ := firstSync(b, path.Node, c, true)
		compare, f := measure.Compare(b, path, netip.AddrPortFrom(serviceIP(0), 80)), measure.Figures{}
		for b.Loop() {
			compare(f)
		}
		report(b, f)
		lab.Must(b, w.close(path.Node))
	})
}

// syncTimes is what one first synchronization took.
type syncTimes struct {
	total, kernel   time.Duration
	elements, bytes int
}

// firstSync fills a new world and measures from "caches are complete" until the kernel has everything.
func firstSync(b testing.TB, ns *lab.Namespace, c *cluster, gathers gathering) (*world, syncTimes) {
	b.Helper()
	w, err := newWorld(ns, gathers)
	lab.Must(b, err)
	c.fill(w.store)
	took, s := w.do(b, w.store.MarkSynced)
	return w, syncTimes{total: took, kernel: s.kernel, elements: s.added, bytes: s.bytes}
}

// inWorld makes a first synchronization in a new namespace, and calls then with the world.
func inWorld(b *testing.B, c *cluster, gathers gathering, then func(*world)) syncTimes {
	b.Helper()
	time.Sleep(500 * time.Millisecond) // in which the kernel frees the tables of earlier rounds
	ns, err := lab.NewNamespace("bench")
	lab.Must(b, err)
	w, t := firstSync(b, ns, c, gathers)
	then(w)
	lab.Must(b, w.close(ns), ns.Close())
	return t
}
