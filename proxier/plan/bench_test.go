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

// BenchmarkPlanOfManyPorts: a tenant has many ports share many endpoints, with the default limits.
func BenchmarkPlanOfManyPorts(b *testing.B) {
	for _, n := range []int{40, 400, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			list := spread(state.IPv4, 10_000)
			list[0].Backup = true // so somebody watches the endpoints
			svc := service(func(s *state.Service) { s.ClusterIPs, s.Ports = s.ClusterIPs[:1], manyPorts(n, list) })
			p := Planner{Limits: Limits{Frontends: Limit{N: 4096, Flag: "--most"}, Elements: Limit{N: 100_000, Flag: "--most"}}}
			b.ReportAllocs()
			for b.Loop() {
				p.Plan(svc, list, environment())
			}
		})
	}
}

// BenchmarkPlanOfOneAddress: all endpoints have one address, and their ports arrive in the worst order.
func BenchmarkPlanOfOneAddress(b *testing.B) {
	for _, n := range []int{400, 4000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var list []*state.Slice
			for i := range n {
				sl := slice(fmt.Sprintf("web-%05d", i), "10.0.0.1")
				sl.Ports = []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: uint16(n - i)}}
				list = append(list, sl)
			}
			var p Planner
			for b.Loop() {
				p.Plan(service(nil), list, environment())
			}
		})
	}
}
