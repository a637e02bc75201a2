package main

import (
	"os"
	"runtime/debug"
)

// gcPercent lets the heap grow by half of what is in use before a collection, not by as much again. The proxy allocates
// little once it is in step, so that this costs next to nothing: with 50,000 Services and 90 changes a second there was one
// collection in 50 s, of 0.2 s of CPU time.
const gcPercent = 50

// spareMemory sets it, unless the user has chosen for himself.
func spareMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// returnMemory gives back to the kernel what a pass over the whole cluster took and nobody needs any more; on its own the
// runtime would keep it for minutes.
func returnMemory() { go debug.FreeOSMemory() }
