//go:build e2e

package flood

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// window is how long each turn of BenchmarkFlood is.
const window = 500 * time.Millisecond

// turn has what others notice during a window.
type turn struct{ connects, changes measure.Sample }

func (a *turn) add(o turn) {
	a.connects, a.changes = append(a.connects, o.connects...), append(a.changes, o.changes...)
}

// BenchmarkFlood measures new connections to a Service, and changes of another one, without a flood and with it, in turn.
func BenchmarkFlood(b *testing.B) {
	for _, f := range []struct {
		name  string
		begin func(b *testing.B, bed *bed, round int) (end func())
	}{
		{"SYN", packets(lab.TCP)},
		{"UDP", packets(lab.UDP)},
		{"SYN-full-table", full(lab.TCP)},
		{"UDP-full-table", full(lab.UDP)},
		{"10,000-Services", storm},
	} {
		b.Run(f.name, func(b *testing.B) {
			var further []object
			if f.name == "10,000-Services" {
				further = crowd(10_000, 0)
			}
			bed := newBed(b, further...)
			watch := bed.stopwatch(b)
			var calm, flooded turn
			bed.turn(b, watch) // warms up
			round := 0
			for b.Loop() {
				round++
				bed.rest(b)
				calm.add(bed.turn(b, watch))
				end := f.begin(b, bed, round)
				flooded.add(bed.turn(b, watch))
				end()
			}
			report(b, "connect", calm.connects, flooded.connects)
			report(b, "change", calm.changes, flooded.changes)
			b.ReportMetric(0, "ns/op")
		})
	}
}

// storm changes 10,000 Services within a window, which is far more than an API server can.
func storm(_ *testing.B, bed *bed, round int) func() {
	all := bed.server.encode(crowd(10_000, round)...)
	var running sync.WaitGroup
	running.Go(func() {
		const parts = 50
		tick := time.NewTicker(window / parts)
		defer tick.Stop()
		for part := range slices.Chunk(all, len(all)/parts) {
			<-tick.C
			bed.server.write(part)
		}
	})
	return running.Wait
}

// packets is a flood of packets to the Service with affinity.
func packets(protocol lab.Protocol) func(*testing.B, *bed, int) func() {
	return func(b *testing.B, bed *bed, _ int) func() {
		stop := bed.flood(b, lab.Outside, protocol, stickyFrontend)
		return func() {
			b.Logf("%d packets a second, %d flows", int(float64(stop())/window.Seconds()), bed.tracked(b, "count"))
		}
	}
}

// full is the same flood while the table of connections is full of its flows.
func full(protocol lab.Protocol) func(*testing.B, *bed, int) func() {
	return func(b *testing.B, bed *bed, round int) func() {
		bed.fillTable(b, halfOpen)
		return packets(protocol)(b, bed, round)
	}
}

// rest waits until nothing is left of a flood.
func (b *bed) rest(t testing.TB) {
	t.Helper()
	b.forget(t)
	b.daemon.WaitFor(t, "rest", func(*socket.Status) bool { return true })
	b.server.forget()
}

// idle is long enough between two changes that the daemon does not gather them (--min-sync-period).
const idle = 20 * time.Millisecond

func (b *bed) turn(t testing.TB, watch *stopwatch) (u turn) {
	t.Helper()
	for end := time.Now().Add(window); time.Now().Before(end); {
		for pause := time.Now().Add(idle); time.Now().Before(pause); time.Sleep(time.Millisecond) {
			u.connects = append(u.connects, b.connections(t, 5)...)
		}
		u.changes = append(u.changes, watch.change(t))
	}
	return u
}

// report shows both samples, and their ratio.
func report(b *testing.B, what string, calm, flooded measure.Sample) {
	b.Helper()
	for _, q := range []float64{0.5, 0.99} {
		name := fmt.Sprintf("%s-p%d", what, int(q*100))
		was, is := measure.Milliseconds(calm.Quantile(q)), measure.Milliseconds(flooded.Quantile(q))
		b.ReportMetric(was, name+"-calm-ms")
		b.ReportMetric(is, name+"-ms")
		b.ReportMetric(is/was, name+"-ratio")
	}
}
