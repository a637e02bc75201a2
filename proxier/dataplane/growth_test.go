package dataplane

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// stickyPlan is a Service with one endpoint and a timeout of session affinity.
func stickyPlan(number int, timeout time.Duration) *plan.Service {
	name := fmt.Sprintf("svc-%d", number)
	addr := netip.AddrFrom4([4]byte{10, 96, byte(number >> 8), byte(number)})
	return &plan.Service{Name: state.Name{Namespace: "default", Name: name}, Ports: []plan.Port{{
		Family: state.IPv4, Protocol: state.TCP, Name: "default/" + name + ":http", Affinity: timeout,
		Frontends: []plan.Frontend{{Frontend: serviceport.Frontend{Addr: addr, Port: 80, ClusterIP: true, Pool: serviceport.ClusterPool}}},
		Cluster:   []serviceport.Endpoint{{Addr: netip.AddrPortFrom(addr, 8080), Weight: 1}},
	}}}
}

// TestReplanWhenThereIsRoom: a Service that met a shared limit is named when there is room, and not before; a Service
// that is gone, or has changed its wish, is not named.
func TestReplanWhenThereIsRoom(t *testing.T) {
	d := New(Options{Ruleset: inMemory()})
	const timeouts = 8 // those that nft serves exactly, beside its rungs
	for i := range timeouts + 3 {
		problems := d.Set(stickyPlan(i, time.Duration(100+i)*time.Second))
		if limited := len(problems) > 0; limited != (i >= timeouts) {
			t.Fatalf("Service %d has the problems %v", i, problems)
		}
	}
	if r := d.Apply(); len(r.Replan) > 0 || r.Err != nil {
		t.Fatalf("without room: %+v", r)
	}
	d.Delete(stickyPlan(timeouts, 0).Name)
	if p := d.Set(stickyPlan(timeouts+1, time.Hour)); len(p) > 0 {
		t.Fatalf("a rung is refused: %v", p)
	}
	last := stickyPlan(timeouts+2, (100+timeouts+2)*time.Second)
	d.Delete(stickyPlan(0, 0).Name)
	r := d.Apply()
	if len(r.Replan) != 1 || r.Replan[0] != last.Name || r.Applied() {
		t.Fatalf("with room for one: replan %v", r.Replan)
	}
	if p := d.Set(last); len(p) > 0 {
		t.Fatalf("there is room, but: %v", p)
	}
	if r := d.Apply(); !r.Applied() {
		t.Fatalf("in the end: %+v", r)
	}
	if r := d.Tick(); len(r.Replan) > 0 {
		t.Fatalf("nothing waits, but Tick names %v", r.Replan)
	}
}

// TestLimitedIsCounted: the totals count a port that is served less well than asked for.
func TestLimitedIsCounted(t *testing.T) {
	d := New(Options{Ruleset: inMemory()})
	planned := stickyPlan(1, time.Hour)
	for i := range 5000 {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		planned.Ports[0].Cluster = append(planned.Ports[0].Cluster, serviceport.Endpoint{Addr: netip.AddrPortFrom(addr, 80), Weight: 1})
	}
	if p := d.Set(planned); len(p) != 1 {
		t.Fatalf("problems %v", p)
	}
	if got := d.Totals().Engines[NFT]; got.Endpoints != 5001 || got.Frontends[plan.ClusterIP] != 1 || got.Pools[0] != 1 {
		t.Errorf("totals %+v", got)
	}
	d.Delete(planned.Name)
	if d.Totals() != (AllTotals{}) {
		t.Errorf("nothing is served, but the totals are %+v", d.Totals())
	}
}

// BenchmarkWaiting has many Services wait for timeouts. The cost of a change and its Apply must not grow with their
// number.
func BenchmarkWaiting(b *testing.B) {
	for _, n := range []int{400, 4000, 40_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			d := New(Options{Ruleset: inMemory()})
			for i := range n {
				d.Set(stickyPlan(i, time.Duration(100+i)*time.Second))
			}
			d.Apply()
			for i := 0; b.Loop(); i++ {
				d.Set(stickyPlan(n-1, time.Duration(100+n+i%2)*time.Second))
				if r := d.Apply(); !r.Applied() {
					b.Fatalf("%+v", r)
				}
			}
		})
	}
}
