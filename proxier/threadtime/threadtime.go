// Package threadtime measures how much processor time a piece of work takes. On a busy node, work waits for a processor more often
// than it has one. What bounds the share of a processor must not count that time, or it rests when it is needed most.
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

// used is how long the present thread has run.
func used() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_THREAD, &usage) != nil { // the arguments are right
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
