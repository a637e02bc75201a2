//go:build e2e

package flood

import (
	"fmt"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// checksTime is how long BenchmarkChecks measures changes in each row. The share of a core is measured for half of it before.
const checksTime = 30 * time.Second

// flapping are Services with one primary endpoint and 50,000 backups each, whose checks pass and fail in turn. They share their
// endpoints, and so their checks.
func flapping(services int) (list []object) {
	const each, size = 1000, 50
	for i := range services {
		name := fmt.Sprintf("checked-%d", 100+i)
		list = append(list, checked(100+i, "http interval=1s rise=1 fall=1", flapPort, 0)[0],
			farmSlice("tenant", name, name+"-primary", 251, flapPort, 1))
		for j := range size {
			s := farmSlice("tenant", name, fmt.Sprintf("%s-backups-%d", name, j), 256+4*j, flapPort, each)
			s.Annotations = map[string]string{"verdict-proxy.github.io/backup": "true"}
			list = append(list, s)
		}
	}
	return list
}

// BenchmarkChecks measures what others notice of a tenant who asks for 10,000 checks a second, and of one with 50,000 backup
// endpoints whose checks flap.
func BenchmarkChecks(b *testing.B) {
	table := measure.Table{Head: []string{
		"the tenant asks for", "flows, at most", "the daemon's share of a core", "another tenant's check each second, p50 / p99 / latest",
		"another tenant's change, p50 / p99 / slowest",
	}}
	for _, row := range []struct {
		name    string
		objects []object
	}{
		{"nothing", nil},
		{"10,000 checks a second of all ends", mixedChecks(1000)},
		{"1 primary and 50,000 backups that flap, interval=1s", flapping(1)},
		{"8 such Services", flapping(8)},
	} {
		b.Run(row.name, func(b *testing.B) {
			for b.Loop() {
				table.Add(append([]string{row.name}, measureChecks(b, row.objects)...)...)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
	fmt.Printf("%v\n\n%v", measure.ThisMachine(), &table)
}

func measureChecks(b *testing.B, objects []object) []string {
	b.Helper()
	bed := newBedWithout(b)
	farm := bed.newFarm(b)
	bed.server.put(others()...)
	bed.server.put(objects...)
	bed.start(b)
	watch := bed.stopwatch(b)
	bed.settled(b, watch)
	time.Sleep(3 * time.Second) // the first checks are over
	var changes measure.Sample
	var share float64
	began := time.Now()
	most := bed.mostFlows(b, func() {
		before := bed.memory(b)
		time.Sleep(checksTime / 2)
		share = float64(bed.memory(b).CPU-before.CPU) / float64(time.Since(began)) * 100
		changes = watch.sample(b, checksTime)
	})
	pauses := measure.Sample(farm.pauses(began))
	return []string{
		measure.Count(most), fmt.Sprintf("%.1f %%", share),
		fmt.Sprintf("%.2f / %.2f / %.2f s", pauses.Median().Seconds(), pauses.Quantile(0.99).Seconds(), pauses.Quantile(1).Seconds()),
		fmt.Sprintf("%.1f / %.1f / %.1f ms", measure.Milliseconds(changes.Median()), measure.Milliseconds(changes.Quantile(0.99)),
			measure.Milliseconds(changes.Quantile(1))),
	}
}
