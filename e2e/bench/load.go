package main

import (
	"os"
	"runtime"
	"syscall"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// streamRate is the number of changes per second of a busy cluster.
const streamRate = 100

// stream writes changes at a steady rate and measures the CPU time of the whole process: the store, the loop, the
// engine, the kernel's share in system calls, garbage collection, and the small share of the benchmark itself.
func stream(w *world, c *cluster, seconds int, out *measure.Lines, at string) {
	changes := make([]*state.Slice, streamRate*seconds)
	for i := range changes {
		changes[i] = c.replaceOne(c.pick())
	}
	w.drain()
	before, start := cpuTime(), time.Now()
	tick := time.NewTicker(time.Second / streamRate)
	defer tick.Stop()
	passes := 0
	for _, sl := range changes {
		<-tick.C
		w.store.SetSlice(sl, nil)
		passes += w.drain()
	}
	elapsed := time.Since(start).Seconds()
	percent := 100 * (cpuTime() - before).Seconds() / elapsed
	time.Sleep(5 * pause)
	out.Add("Stream"+at, len(changes), measure.Figures{
		"cpu-%": percent, "changes/sec": float64(len(changes)) / elapsed,
		"transactions/sec": float64(passes+w.drain()) / elapsed,
	})
}

// drain counts the passes that have ended, without waiting for any.
func (w *world) drain() (passes int) {
	for {
		select {
		case s := <-w.settled:
			passes += s.passes
		default:
			return passes
		}
	}
}

// cpuTime is the CPU time of this process so far, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory measures this process after a first synchronization, which is the state of the daemon at that moment. Memory
// that the runtime has not returned to the kernel counts as resident.
func memory(out *measure.Lines, at string) error {
	p, err := measure.Inspect(os.Getpid())
	if err != nil {
		return err
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	out.Add("Memory"+at, 1, measure.Figures{
		"resident-B": float64(p.RSS), "peak-B": float64(p.Peak), "heap-B": float64(m.HeapAlloc),
	})
	return nil
}
