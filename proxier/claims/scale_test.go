package claims

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	manyServices = 50_000
	perService   = 4 // two frontends in two families
)

// manyPlan returns the plan of one of many Services without common frontends.
func manyPlan(i int) *plan.Service {
	p := &plan.Service{Name: state.Name{Namespace: "ns", Name: fmt.Sprintf("service-%06d", i)}, Ports: make([]plan.Port, 2)}
	for f := range p.Ports {
		port := &p.Ports[f]
		b := [16]byte{0: 0xfd, 12: 10, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}
		port.Protocol, port.Family = state.TCP, state.IPv6
		addr := netip.AddrFrom16(b)
		if f == 0 {
			port.Family, addr = state.IPv4, netip.AddrFrom4([4]byte(b[12:]))
		}
		port.Frontends = []plan.Frontend{{Addr: addr, Port: 80}, {Addr: addr, Port: 443}}
	}
	return p
}

// TestMemory limits the memory for each claim to 100 bytes. That includes its share of the entry of the Service.
func TestMemory(t *testing.T) {
	plans := make([]*plan.Service, manyServices)
	for i := range plans {
		plans[i] = manyPlan(i)
	}
	before := heap()
	c := New()
	for _, p := range plans {
		c.Resolve(p, at(1))
	}
	each := float64(heap()-before) / (manyServices * perService)
	t.Logf("%.1f bytes per claim", each)
	if each > 100 {
		t.Errorf("%.1f bytes per claim, want at most 100", each)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(plans)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkResolve resolves one Service again among few Services and among many. The cost must be the same.
func BenchmarkResolve(b *testing.B) {
	for _, n := range []int{100, manyServices} {
		c := New()
		for i := range n {
			c.Resolve(manyPlan(i), at(1))
		}
		p := manyPlan(n / 2)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Resolve(p, at(1))
			}
		})
	}
}
