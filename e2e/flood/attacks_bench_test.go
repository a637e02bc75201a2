//go:build e2e

package flood

import (
	"errors"
	"flag"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

var victimChanges = flag.Int("changes", 300, "changes of the victim that BenchmarkAttacks measures before and during each attack")

const (
	attackRounds = 2               // each row has a bed for each round: first it is quiet, then it is attacked
	shortest     = 6 * time.Second // an attack goes on for at least that long
)

// longest is when no change of the victim begins any more, although there may not have been enough.
func longest() time.Duration {
	return max(12*time.Second, time.Duration(*victimChanges/attackRounds)*2*idle)
}

// attack is a row of BenchmarkAttacks.
type attack struct {
	name    string
	objects func() []object // that are there before
	begin   func(b *testing.B, bed *bed) (end func())
	victim  func(b *testing.B, bed *bed) (change func() time.Duration) // nil: a Service gets another endpoint
	period  time.Duration                                              // at least, of an attack; 0: shortest
}

// phase is what was measured while it was quiet, or while somebody attacked.
type phase struct {
	changes, commits, clock          measure.Sample
	connections, refused, lost, most int // most: bytes of the daemon's memory
}

func (p *phase) add(o *phase) {
	p.changes, p.commits, p.clock = append(p.changes, o.changes...), append(p.commits, o.commits...), append(p.clock, o.clock...)
	p.connections, p.refused, p.lost, p.most = p.connections+o.connections, p.refused+o.refused, p.lost+o.lost, max(p.most, o.most)
}

// BenchmarkAttacks measures how long a change of one namespace takes while another one does what cost others much once, how
// long the machine stands still meanwhile, and whether new connections fail.
func BenchmarkAttacks(b *testing.B) {
	table := measure.Table{Head: []string{
		"attack", "changes", "victim's change while quiet, p50 / p99 / slowest", "while attacked", "a commit elsewhere, p99 / slowest",
		"a sleep of 1 ms is late, p99 / latest", "connections: refused / lost", "memory while quiet, while attacked",
	}}
	for _, a := range attacks() {
		b.Run(a.name, func(b *testing.B) {
			var quiet, attacked phase
			for b.Loop() {
				for range attackRounds {
					b.Run("", func(b *testing.B) { a.measure(b, &quiet, &attacked) })
				}
			}
			three := func(s measure.Sample) string { return milliseconds(s, 0.5, 0.99, 1) }
			table.Add(a.name, fmt.Sprintf("%d, %d", len(quiet.changes), len(attacked.changes)), three(quiet.changes), three(attacked.changes),
				milliseconds(attacked.commits, 0.99, 1), milliseconds(attacked.clock, 0.99, 1),
				fmt.Sprintf("%s: %d / %d", measure.Count(attacked.connections), attacked.refused, attacked.lost),
				fmt.Sprintf("%d, %d MB", quiet.most/1e6, attacked.most/1e6))
			b.ReportMetric(0, "ns/op")
		})
	}
	fmt.Printf("%v\n\n%v", measure.ThisMachine(), &table)
}

// milliseconds are quantiles, and their unit.
func milliseconds(s measure.Sample, quantiles ...float64) (text string) {
	for i, q := range quantiles {
		if i > 0 {
			text += " / "
		}
		text += measure.Short(measure.Milliseconds(s.Quantile(q)))
	}
	return text + " ms"
}

// measure is a round.
func (a *attack) measure(b *testing.B, quiet, attacked *phase) {
	bed := newBedWithout(b)
	if a.objects != nil {
		bed.server.put(a.objects()...)
	}
	bed.start(b)
	watch := bed.stopwatch(b)
	change := func() time.Duration { return watch.change(b) }
	if a.victim != nil {
		change = a.victim(b, bed)
	}
	watch.catchUp(b)
	m, enough := watchMachine(b), *victimChanges/attackRounds
	for range 5 {
		change() // warms up
	}
	m.take()
	quiet.add(bed.phase(b, m, change, enough, 0))
	end := a.begin(b, bed)
	attacked.add(bed.phase(b, m, change, enough, max(a.period, shortest)))
	end()
	bed.daemon.Killed = true // or it would first finish what the tenant wrote
	lab.Must(b, bed.daemon.Kill())
}

// phase makes changes until there are enough and a time is over.
func (b *bed) phase(t testing.TB, m *machine, change func() time.Duration, enough int, least time.Duration) *phase {
	t.Helper()
	p := &phase{}
	stop := repeat(100*time.Millisecond, func(int) {
		if used, err := measure.Inspect(b.daemon.PID()); err == nil {
			p.most = max(p.most, int(used.RSS))
		}
	})
	left := b.client(t, p)
	pause := time.NewTicker(idle)
	defer pause.Stop()
	for began := time.Now(); time.Since(began) < max(longest(), least) && (len(p.changes) < enough || time.Since(began) < least); <-pause.C {
		p.changes = append(p.changes, change())
	}
	left()
	stop()
	p.commits, p.clock = m.take()
	return p
}

// client makes connections to shop/calm, until stop is called. A connection that takes longer than a second has lost a packet.
func (b *bed) client(t testing.TB, p *phase) (stop func()) {
	t.Helper()
	ended, done := make(chan struct{}), make(chan error)
	at := b.At(t, "y")
	go func() {
		done <- at.Do(func() error {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for {
				took, err := connect(calmFrontend)
				switch p.connections++; {
				case errors.Is(err, unix.ECONNREFUSED):
					p.refused++
				case err != nil || took >= time.Second:
					p.lost++
				}
				select {
				case <-ended:
					return nil
				case <-tick.C:
				}
			}
		})
	}()
	return func() { close(ended); lab.Must(t, <-done) }
}
