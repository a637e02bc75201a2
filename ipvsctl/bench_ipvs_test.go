//go:build ipvs

package ipvsctl

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// BenchmarkChange replaces one of ten endpoints of a virtual server, while few or many other virtual servers exist. The
// cost must not depend on their number. It includes the difference, the system calls, and the drains. Compare medians:
// now and then the kernel's estimators interrupt an emulated CPU for a long time.
//
//	e2e/ipvskernel/test.sh ./ipvsctl -- -test.run '^$' -test.bench Change -test.count 5
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkChange(b, n) })
	}
}

func benchmarkChange(b *testing.B, n int) {
	e := openIn(b, newNamespace(b))
	servers := make([]VirtualServer, n)
	began := time.Now()
	for i := range servers {
		servers[i] = benchServer(i)
		mustSet(b, e, servers[i].String(), servers[i])
	}
	pass(b, e, start())
	built := time.Since(began)
	timed := &timedKernel{kernel: e.kernel}
	e.kernel = timed
	now, i := start(), 0
	var each []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		i++
		v := servers[i*7919%n]
		v.RealServers = append([]RealServer(nil), v.RealServers...)
		at := v.RealServers[i%10].Addr
		v.RealServers[i%10].Addr = netip.AddrPortFrom(at.Addr(), at.Port()^1)
		began := time.Now()
		must(b, e.Set(v.String(), []VirtualServer{v}))
		r, err := e.Add(now)
		each = append(each, time.Since(began))
		must(b, err)
		if len(r.Operations) < 2 {
			b.Fatalf("only %d operations:\n%s", len(r.Operations), r.Operations)
		}
		servers[i*7919%n] = v
		b.StopTimer() // without Tick, the number of draining real servers would grow
		spent := timed.spent
		now = now.Add(period)
		_, err = e.Tick(now)
		must(b, err)
		timed.spent = spent
		b.StartTimer()
	}
	slices.Sort(each)
	b.ReportMetric(float64(each[len(each)/2].Microseconds()), "µs-median")
	b.ReportMetric(float64(timed.spent.Microseconds())/float64(i), "kernel-µs/op")
	b.ReportMetric(float64(built.Milliseconds()), "ms-to-build")
}

// timedKernel measures the time of the system calls that change something.
type timedKernel struct {
	kernel
	spent time.Duration
}

func (k *timedKernel) execute(o Operation) error {
	began := time.Now()
	err := k.kernel.execute(o)
	k.spent += time.Since(began)
	return err
}

func benchServer(i int) VirtualServer {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], 10<<24|96<<16|uint32(i+1))
	v := VirtualServer{Key: Key{Addr: netip.AddrFrom4(a), Port: 80, Protocol: TCP}, Scheduler: "lc", Local: true}
	for j := range 10 {
		addr := netip.AddrFrom4([4]byte{10, 0, byte(i), byte(j + 1)})
		v.RealServers = append(v.RealServers, RealServer{Addr: netip.AddrPortFrom(addr, 8080), Weight: 1})
	}
	return v
}
