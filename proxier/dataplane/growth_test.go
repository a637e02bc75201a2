package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// fullRuleset refuses every port once it is full.
type fullRuleset struct {
	*nft.Memory
	full bool
}

func (r *fullRuleset) Set(p *nft.Port) error {
	if r.full {
		return errors.New("injected: over the limit")
	}
	return r.Memory.Set(p)
}

// TestRefusedIsNotCounted: the totals count what the kernel has, also for a port that keeps what it had.
func TestRefusedIsNotCounted(t *testing.T) {
	rules := &fullRuleset{Memory: nft.OpenMemory(nft.Options{})}
	d := New(Options{Ruleset: rules})
	planOf := func(name string, addrs ...string) *plan.Service {
		port := plan.Port{Family: state.IPv4, Protocol: state.TCP, Name: "default/" + name + ":http"}
		for i, a := range addrs {
			addr := netip.MustParseAddr(a)
			port.Frontends = append(port.Frontends, plan.Frontend{Addr: addr, Port: 80})
			port.Cluster = append(port.Cluster, plan.Endpoint{Addr: netip.AddrPortFrom(addr, uint16(i+1)), Weight: 1})
		}
		return &plan.Service{Name: state.Name{Namespace: "default", Name: name}, Ports: []plan.Port{port}}
	}
	for _, step := range []struct {
		what string
		set  *plan.Service
		full bool
		want int
	}{
		{"a Service is served", planOf("a", "10.96.0.1"), false, 1},
		{"it grows past a limit", planOf("a", "10.96.0.1", "10.96.0.2", "10.96.0.3"), true, 1},
		{"a new one is refused", planOf("b", "10.96.1.1", "10.96.1.2"), true, 1},
		{"it is accepted", planOf("b", "10.96.1.1", "10.96.1.2"), false, 3},
		{"the first one shrinks", planOf("a", "10.96.0.1", "10.96.0.2"), false, 4},
	} {
		rules.full = step.full
		d.Set(step.set)
		if got := d.Totals()[NFT]; got.Frontends[plan.ClusterIP] != step.want || got.Endpoints != step.want {
			t.Errorf("%s: %d frontends, %d endpoints; want %d of each", step.what, got.Frontends[plan.ClusterIP], got.Endpoints, step.want)
		}
	}
	d.Delete(state.Name{Namespace: "default", Name: "a"})
	d.Delete(state.Name{Namespace: "default", Name: "b"})
	if d.Totals() != (TotalsByEngine{}) {
		t.Errorf("nothing is served, but the totals are %+v", d.Totals())
	}
}

// BenchmarkRefusedPorts sets a Service whose ports the nft engine had and refuses now. The cost must grow with the
// number of ports, and not with its square.
func BenchmarkRefusedPorts(b *testing.B) {
	for _, n := range []int{200, 2000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			rules := &fullRuleset{Memory: nft.OpenMemory(nft.Options{})}
			d := New(Options{Ruleset: rules})
			planned := &plan.Service{Name: web}
			for i := range n {
				planned.Ports = append(planned.Ports, plan.Port{Family: state.IPv4, Protocol: state.TCP, Name: fmt.Sprint("default/web:", i)})
			}
			d.Set(planned)
			rules.full = true
			for b.Loop() {
				d.Set(planned)
			}
		})
	}
}
