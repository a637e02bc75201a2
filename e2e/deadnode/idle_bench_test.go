//go:build e2e

package deadnode

import (
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// BenchmarkIdle is the work of a daemon that observes 10,000 Services while nothing is wrong, and of one that does not
// look: how much of a core each takes.
func BenchmarkIdle(b *testing.B) {
	for _, mode := range []string{"observe", "off"} {
		b.Run(mode, func(b *testing.B) {
			p := startIdle(b, mode)
			before, err := measure.Inspect(p.PID())
			lab.Must(b, err)
			began := time.Now()
			for b.Loop() {
				time.Sleep(10 * time.Second)
			}
			after, err := measure.Inspect(p.PID())
			lab.Must(b, err)
			b.ReportMetric(100*(after.CPU-before.CPU).Seconds()/time.Since(began).Seconds(), "%-of-a-core")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// startIdle starts a daemon with many Services, and waits until it has nothing to do.
func startIdle(b *testing.B, mode string) *lab.Process {
	b.Helper()
	dir, node := b.TempDir(), space(b, "node")
	daemon.Fill(b, dir, 10_000, 2)
	d := daemon.Run(b, node, b.TempDir(), binary, "run", "--manifests="+dir, "--hostname-override="+lab.NodeName,
		"--outlier-detection="+mode, "--healthz-bind-address=", "--metrics-bind-address=")
	time.Sleep(5 * time.Second) // garbage of the first pass
	return d.Process
}
