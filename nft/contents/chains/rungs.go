package chains

import (
	"slices"
	"time"
)

// ExactTimeouts is how many different affinity timeouts a family's table has beside the rungs. Each timeout may need a
// class for each draw and pool, and a new class costs more the more classes there are, because the kernel validates the
// graph of chains: 0.2 ms with 34 classes, 2.4 ms with 1,000, 16 ms with 3,800 (at 10,000 services). So a tenant that
// changes its timeout with each update costs the others little.
const ExactTimeouts = 8

const RungCount = 6

// rungs are the timeouts that are always available, in order. The default of Kubernetes and its maximum are among them.
func rungs() [RungCount]time.Duration {
	return [...]time.Duration{
		time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour, 12 * time.Hour, 24 * time.Hour,
	}
}

func IsRung(timeout time.Duration) bool {
	list := rungs()
	return slices.Contains(list[:], timeout)
}

// RungFor is the shortest rung that is at least as long, or the longest rung.
func RungFor(timeout time.Duration) time.Duration {
	list := rungs()
	at, _ := slices.BinarySearch(list[:], timeout)
	return list[min(at, len(list)-1)]
}
