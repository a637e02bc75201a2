package main

import (
	"testing"
)

// These are the benchmarks that need no world of an earlier measurement. They run under go test too, with its profiles:
//
//	go test ./e2e/bench -run '^$' -bench 'EndpointReplacedBusy/services=1000$' -count 6 -cpuprofile cpu.out

func BenchmarkFirstSync(b *testing.B) { atSizes(b, firstSyncs) }

func BenchmarkEndpointReplacedBusy(b *testing.B) {
	atSizes(b, busyChanges)
	b.Run(bigCase, func(b *testing.B) { must(b, busyChanges(newBigCluster())) })
}

func BenchmarkEndpointReplaced(b *testing.B) {
	paused := func(c *cluster) benchmark { return pausedChanges(c, &syncTimes{}) }
	atSizes(b, paused)
	b.Run(bigCase, func(b *testing.B) { must(b, paused(newBigCluster())) })
	b.Run(nodePortCase, func(b *testing.B) { must(b, paused(newNodePortCluster())) })
}

// atSizes runs a benchmark at several sizes.
func atSizes(b *testing.B, of func(*cluster) benchmark) {
	for _, services := range []int{100, 1000, 10_000} {
		b.Run(sizeSuffix(services), func(b *testing.B) { must(b, of(newCluster(services, perService))) })
	}
}

func must(b *testing.B, run benchmark) {
	b.Helper()
	if err := run(b); err != nil {
		b.Fatal(err)
	}
}
