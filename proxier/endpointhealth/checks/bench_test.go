package checks

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// BenchmarkDueChecks asks the endpoints of a Service that is larger and larger. What one question costs hardly grows.
func BenchmarkDueChecks(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := checkerWith(rand.Float64)
			c.Set(web, tcpCheck(), targets(n), start)
			for now := start; b.Loop(); now = now.Add(tcpCheck().Interval / time.Duration(n)) {
				round(c, true, now)
			}
		})
	}
}

// BenchmarkSet tells the endpoints of a Service, of which one goes or comes.
func BenchmarkSet(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c, list := checkerWith(rand.Float64), targets(n)
			for i := 0; b.Loop(); i++ {
				next := slices.Clone(list)
				if i%2 > 0 {
					next = slices.Delete(next, i%n, i%n+1)
				}
				c.Set(web, tcpCheck(), next, start)
			}
		})
	}
}
