package plan

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// spread makes slices of at most 100 endpoints. Addresses are in no order, as in slices of the EndpointSlice
// controller.
func spread(family state.Family, n int) (list []*state.Slice) {
	for i := 0; i < n; i++ {
		if i%100 == 0 {
			sl := slice(fmt.Sprintf("web-%05d", i))
			sl.Family = family
			list = append(list, sl)
		}
		k := uint16(i * 7919) // 7919 and 65536 share no factor, so every number occurs once
		addr := netip.AddrFrom4([4]byte{10, 244, byte(k >> 8), byte(k)})
		if family == state.IPv6 {
			addr = netip.AddrFrom16([16]byte{0: 0xfd, 1: 2, 6: byte(k >> 8), 7: byte(k), 12: byte(k * 31 >> 8), 15: byte(k * 31)})
		}
		sl := list[len(list)-1]
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: addr, Ready: true, Serving: true, Node: there})
	}
	return list
}

func BenchmarkPlan(b *testing.B) {
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		for _, n := range []int{1, 10, 100, 1000, 5000} {
			b.Run(fmt.Sprintf("%v/%d", family, n), func(b *testing.B) {
				svc, list, env := service(nil), spread(family, n), environment()
				env.IPv4, env.IPv6 = family == state.IPv4, family == state.IPv6
				var p Planner
				b.ReportAllocs()
				for b.Loop() {
					p.Plan(svc, list, env)
				}
			})
		}
	}
}
