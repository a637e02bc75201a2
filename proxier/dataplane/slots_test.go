package dataplane

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// hashAt is a Service whose ports hash clients. The lists of endpoints of its ports begin at different addresses if
// they are to differ.
func hashAt(ports, endpoints int, differ bool) *plan.Service {
	planned := &plan.Service{Name: web}
	for i := range ports {
		port := plan.Port{
			Family: state.IPv4, Protocol: state.TCP, Name: fmt.Sprint("default/web:", i), Balancing: state.Balancing{Scheduler: "sh"},
			Frontends: []plan.Frontend{{Frontend: serviceport.Frontend{Addr: netip.MustParseAddr("10.96.0.1"), Port: uint16(1 + i), ClusterIP: true, Pool: serviceport.ClusterPool}}},
		}
		for n := range endpoints {
			if differ {
				n += i
			}
			addr := netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)})
			port.Cluster = append(port.Cluster, serviceport.Endpoint{Addr: netip.AddrPortFrom(addr, uint16(8000+i)), Weight: 1})
		}
		planned.Ports = append(planned.Ports, port)
	}
	return planned
}

func hashingDataplane() *Dataplane {
	return New(Options{Ruleset: inMemory(), Scheduling: Scheduling{Backend: config.BackendNFT}})
}

// TestHashBudget: a Service cannot make more slots than its budget. The ports that fit keep their hash tables.
func TestHashBudget(t *testing.T) {
	for _, test := range []struct {
		planned *plan.Service
		random  int // ports that are served at random
		added   int
	}{
		{hashAt(30, 170, false), 0, 16381 + 30*5},
		{hashAt(30, 170, true), 22, 8*(16381+5) + 22*(170+2)},
		{hashAt(3, 600, true), 1, 2*(65521+5) + 600 + 2},
	} {
		d := hashingDataplane()
		problems := d.Set(test.planned)
		if len(problems) != test.random {
			t.Errorf("%d ports are picked at random, want %d: %v", len(problems), test.random, problems)
		}
		for i, p := range problems {
			name := test.planned.Ports[len(test.planned.Ports)-len(problems)+i].Name
			want := "the hash tables of the Service would need more than 131072 slots in nft (ip); the endpoints of port " +
				name + " are picked at random, by weight"
			if !strings.HasSuffix(p.Reason, want) || p.Field != "metadata.annotations" || p.Object != test.planned.Name || p.Kind != "Service" {
				t.Errorf("%s %s, %s: %s; want: %s", p.Kind, p.Object, p.Field, p.Reason, want)
			}
		}
		r := d.Apply()
		if !r.Applied() {
			t.Fatalf("%+v", r)
		}
		// Besides, there are the cluster IP and the classes.
		if more := r.Added - test.added; more < 0 || more > 100 {
			t.Errorf("%d elements added, want %d and few more", r.Added, test.added)
		}
	}
}

// TestSlotsOfWeights: weights need slots, unless only the endpoints of the greatest weight are served.
func TestSlotsOfWeights(t *testing.T) {
	d := hashingDataplane()
	for scheduler, want := range map[string]int{"": 2, "fo": 0, "sh": 0} {
		port := hashAt(1, 3, false).Ports[0]
		port.Balancing.Scheduler, port.Cluster[1].Weight = scheduler, 3
		if weights, tables := d.Slots(&port); weights != want || (len(tables) > 0) != (scheduler == "sh") {
			t.Errorf("scheduler %q: %d slots for weights, want %d; tables %v", scheduler, weights, want, tables)
		}
	}
}

// BenchmarkHashPorts sets and applies a Service whose ports hash clients, and removes an endpoint.
func BenchmarkHashPorts(b *testing.B) {
	for _, c := range []struct{ ports, endpoints int }{{3, 170}, {30, 170}, {30, 17}} {
		b.Run(fmt.Sprintf("ports=%d/endpoints=%d", c.ports, c.endpoints), func(b *testing.B) {
			for b.Loop() {
				d := hashingDataplane()
				for n := range 2 {
					d.Set(hashAt(c.ports, c.endpoints-n, false))
					if r := d.Apply(); !r.Applied() {
						b.Fatalf("%+v", r)
					}
				}
			}
		})
	}
}
