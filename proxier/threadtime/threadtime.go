// Package threadtime measures how much processor time a piece of work takes. On a busy node, work waits for a processor more often
// than it has one. What bounds the share of a processor must not count that time, or it rests when it is needed most. A Bucket is such
// a share.
package threadtime

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// Measure keeps the goroutine on its thread until the returned function is called. That function returns how long the thread
// has run since then, also in the kernel.
func Measure() (took func() time.Duration) {
	runtime.LockOSThread()
	began := used()
	return func() time.Duration {
		defer runtime.UnlockOSThread()
		return used() - began
	}
}

// Meter measures pieces of work, one after the other, between Start and Stop. Most are brief; to ask for the processor time of
// each would take a hundredth of it, and a thirtieth of the first one after a rest.
type Meter struct {
	used   time.Duration
	long   time.Time // when a piece was last not brief
	locked bool
}

// Brief is how long a piece may take so that its time counts as it is, with what the thread waited.
const Brief = time.Millisecond

// alert is for how long the next pieces may not be brief either.
const alert = time.Second

// Start keeps the goroutine on its thread, if there was a piece lately that was not brief.
func (m *Meter) Start() {
	if time.Since(m.long) < alert {
		m.Lock()
	}
}

// Lock does so in any case, for a piece that will not be brief.
func (m *Meter) Lock() {
	if !m.locked {
		runtime.LockOSThread()
		m.used, m.locked = used(), true
	}
}

// Stop ends that.
func (m *Meter) Stop() {
	if m.locked {
		m.locked = false
		runtime.UnlockOSThread()
	}
}

// Since returns how long a piece has taken that began then. A piece that is not brief takes no longer than the thread has run since
// the last one of these. The first one counts as it is.
func (m *Meter) Since(began time.Time) time.Duration {
	now := time.Now()
	took := now.Sub(began)
	if took < Brief {
		return took
	}
	if m.long = now; !m.locked {
		return took
	}
	before := m.used
	m.used = used()
	return min(took, m.used-before)
}

// Bucket is how much of a share of a processor was used, less what has come back since.
type Bucket struct {
	Used time.Duration
	At   time.Time // when Used was right
}

// Refill gives back what has come back of the share until now.
func (b *Bucket) Refill(share float64, now time.Time) {
	b.Used, b.At = max(0, b.Used-time.Duration(share*float64(now.Sub(b.At)))), now
}

// Spent reports whether nothing is left of what comes back in some time.
func (b *Bucket) Spent(share float64, in time.Duration, now time.Time) bool {
	b.Refill(share, now)
	return b.Used >= time.Duration(share*float64(in))
}

// Rest returns how long the next piece has to wait, so that no more than burst is used.
func (b *Bucket) Rest(share float64, burst time.Duration, now time.Time) time.Duration {
	b.Refill(share, now)
	return time.Duration(float64(max(0, b.Used-burst)) / share)
}

// used is how long the present thread has run.
func used() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &usage) != nil { // the arguments are right
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
