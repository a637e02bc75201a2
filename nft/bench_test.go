//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// The benchmarks need root in the initial user namespace, because large batches do not fit in the socket buffer of an
// ordinary user. kernel-ns/op is the part of ns/op that the kernel needs for the batch.

// BenchmarkFirstSync fills empty tables.
func BenchmarkFirstSync(b *testing.B) {
	for _, services := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			var kernel time.Duration
			for b.Loop() {
				b.StopTimer()
				n := newNamespace(b)
				e := n.engine(b)
				ports := make([]contents.Port, services)
				for i := range ports {
					ports[i] = scalePort(program.IPv4, i, 10)
				}
				b.StartTimer()
				mustSet(b, e, ports...)
				kernel += mustApply(b, e).InKernel
			}
			b.ReportMetric(float64(kernel.Nanoseconds())/float64(b.N), "kernel-ns/op")
		})
	}
}

// BenchmarkTakeover replaces the tables of an earlier process.
func BenchmarkTakeover(b *testing.B) {
	n := newNamespace(b)
	growing(b, n.engine(b), program.IPv4, 0, 10000, 10)
	var kernel time.Duration
	for b.Loop() {
		e := n.engine(b)
		for i := range 10000 {
			mustSet(b, e, scalePort(program.IPv4, i, 10))
		}
		kernel += mustApply(b, e).InKernel
	}
	b.ReportMetric(float64(kernel.Nanoseconds())/float64(b.N), "kernel-ns/op")
}

// benchChange is a change of one service port. Only the change after the preparation is measured.
type benchChange struct {
	name          string
	before, after func(testing.TB, *Engine, int)
}

func set(version func(i int) contents.Port) func(testing.TB, *Engine, int) {
	return func(t testing.TB, e *Engine, i int) { mustSet(t, e, version(i)) }
}

func benchChanges() []benchChange {
	full := set(func(i int) contents.Port { return scalePort(program.IPv4, i, 10) })
	nine := set(func(i int) contents.Port {
		p := scalePort(program.IPv4, i, 10)
		p.Cluster = append(p.Cluster[:4:4], p.Cluster[5:]...)
		return p
	})
	other := set(func(i int) contents.Port {
		p := scalePort(program.IPv4, i, 10)
		p.Cluster[9].Addr = netip.AddrPortFrom(p.Cluster[9].Addr.Addr(), 9999)
		return p
	})
	added := func(int) contents.Port {
		p := scalePort(program.IPv4, 1<<20, 10)
		p.Frontends[1].Port = 65000
		return p
	}
	firewalled := func(i int) contents.Port {
		p := added(i)
		p.Frontends[1], p.Sources = limited(external("203.0.113.1", 80)), prefixes("10.0.0.0/8", "192.0.2.0/24", "198.51.100.7/32")
		return p
	}
	sticky := func(i int) contents.Port {
		p := added(i)
		p.Affinity = time.Hour
		return p
	}
	gone := func(_ testing.TB, e *Engine, i int) { e.Delete(program.IPv4, added(i).Name) }
	return []benchChange{
		{"endpoint removed", full, nine},
		{"endpoint added", nine, full},
		{"endpoint replaced", full, other},
		{"service added", gone, set(added)},
		{"service removed", set(added), gone},
		{"service with source ranges added", gone, set(firewalled)},
		{"sticky service added", gone, set(sticky)},
	}
}

// BenchmarkChange makes one change at a time, in tables of different sizes.
func BenchmarkChange(b *testing.B) {
	for _, services := range []int{100, 10000, 50000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			e := newNamespace(b).engine(b)
			growing(b, e, program.IPv4, 0, services, 10)
			for _, c := range benchChanges() {
				b.Run(c.name, func(b *testing.B) { c.run(b, e, services) })
			}
		})
	}
}

func (c benchChange) run(b *testing.B, e *Engine, services int) {
	var kernel time.Duration
	i := 0
	for b.Loop() {
		b.StopTimer()
		i = (i + 7919) % services // a prime, so that successive changes are far apart
		c.before(b, e, i)
		mustApply(b, e)
		b.StartTimer()
		c.after(b, e, i)
		kernel += mustApply(b, e).InKernel
	}
	b.ReportMetric(float64(kernel.Nanoseconds())/float64(b.N), "kernel-ns/op")
}

// BenchmarkSourceRanges changes one range of one service port, while all the others have three.
func BenchmarkSourceRanges(b *testing.B) {
	for _, f := range program.Families() {
		for _, services := range []int{100, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/services=%d", f, services), func(b *testing.B) {
				ranged := func(i, version int) contents.Port {
					p := scalePort(f, i, 1)
					fe := limited(contents.Frontend{Addr: numbered4or6(f, 30, i), Port: 80, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways})
					p.Frontends = append(p.Frontends, fe)
					for n, bits := range []int{24, 28, 32} {
						a := numbered4or6(f, byte(40+n), i<<8)
						p.Sources = append(p.Sources, netip.PrefixFrom(a, bits+a.BitLen()-32))
					}
					if version > 0 {
						p.Sources[0] = netip.PrefixFrom(numbered4or6(f, 50, i<<8), p.Sources[0].Bits())
					}
					return p
				}
				e := newNamespace(b).engine(b)
				for i := range services {
					mustSet(b, e, ranged(i, 0))
				}
				mustApply(b, e)
				change := benchChange{
					before: set(func(i int) contents.Port { return ranged(i, 0) }), after: set(func(i int) contents.Port { return ranged(i, 1) }),
				}
				change.run(b, e, services)
			})
		}
	}
}

// BenchmarkManyEndpoints replaces one endpoint in a service of 5,000.
func BenchmarkManyEndpoints(b *testing.B) {
	e := newNamespace(b).engine(b)
	p := scalePort(program.IPv4, 0, 5000)
	last := &p.Cluster[len(p.Cluster)-1].Addr
	var kernel time.Duration
	for i := uint16(1); b.Loop(); i++ {
		*last = netip.AddrPortFrom(last.Addr(), i)
		mustSet(b, e, p)
		kernel += mustApply(b, e).InKernel
	}
	b.ReportMetric(float64(kernel.Nanoseconds())/float64(b.N), "kernel-ns/op")
}
