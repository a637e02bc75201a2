package main

import (
	"runtime"
	"syscall"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// streamRate is the changes per second of a busy cluster.
const streamRate = 100

// stream writes changes at a steady rate and measures the CPU time of the whole process: store, loop, engine, the
// kernel's share in the system calls, garbage collection and the little that the writing itself takes.
func stream(w *world, c *cluster, seconds int) (loadResult, error) {
	changes := make([]*state.Slice, streamRate*seconds)
	for i := range changes {
		changes[i] = c.replaceOne(c.pick())
	}
	w.drain()
	before, start := cpuTime(), time.Now()
	tick := time.NewTicker(time.Second / streamRate)
	defer tick.Stop()
	out, passes := loadResult{}, 0
	for _, sl := range changes {
		<-tick.C
		w.store.SetSlice(sl, nil)
		passes += w.drain()
	}
	elapsed := time.Since(start).Seconds()
	out.CPU = 100 * (cpuTime() - before).Seconds() / elapsed
	out.PerSecond = float64(len(changes)) / elapsed
	time.Sleep(5 * pause)
	out.Transactions = float64(passes+w.drain()) / elapsed
	return out, nil
}

// drain counts passes without waiting for any.
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

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // cannot fail with these arguments
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// memory looks at this process after a first synchronization, as the daemon stands then: what the runtime has not given
// back to the kernel counts.
func memory(pid int) (memoryResult, error) {
	p, err := measure.Inspect(pid)
	if err != nil {
		return memoryResult{}, err
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memoryResult{RSS: p.RSS, Peak: p.Peak, Heap: int64(m.HeapAlloc)}, nil
}
