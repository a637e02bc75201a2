package proxier

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// largeChanges are enough elements for a change to count.
const largeChanges = 1000

// large returns a Service whose every external IP depends on the round.
func large(round int) *state.Service {
	svc := service("large", "10.96.9.9", 1)
	svc.Namespace = "tenant"
	for i := range largeChanges {
		svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{203, byte(round), byte(i >> 8), byte(i)}))
	}
	return svc
}

// TestPauses: a namespace that changes too much has to wait. The changes of others go on meanwhile, and in the end the
// kernel has its latest state.
func TestPauses(t *testing.T) { synctest.Test(t, testPauses) } // a pass takes no time, so that no credit comes back meanwhile

func testPauses(t *testing.T) {
	w := newWorldWith(func(o *Options) {
		o.Settings.Budgets.NamespaceElements, o.Settings.Budgets.NamespaceChanges = 4*largeChanges, 10*largeChanges
	})
	w.store.MarkSynced()
	w.mustApply(t)
	round := 0
	for paused := 0; paused == 0; paused = w.watcher.passes[len(w.watcher.passes)-1].Pauses {
		if round++; round > 9 {
			t.Fatal("no pause")
		}
		w.store.SetService(large(round), nil)
		w.mustApply(t)
	}
	w.store.SetService(large(round+1), nil)
	w.store.SetService(large(round+2), nil)
	w.store.SetService(service("web", "10.96.0.7", 1), nil)
	w.mustApply(t)
	has := w.rules.frontends(t)
	if !slices.Contains(has["default/web:http"], "10.96.0.7") {
		t.Error("a Service of another namespace waits, too")
	}
	newest := fmt.Sprintf("203.%d.0.1", round+2)
	if slices.Contains(has["tenant/large:http"], newest) {
		t.Error("the namespace does not wait")
	}
	for end := time.Now().Add(3 * time.Minute); !slices.Contains(w.rules.frontends(t)["tenant/large:http"], newest); {
		select {
		case <-w.store.Wake():
			w.mustApply(t)
		case <-time.After(time.Until(end)):
			t.Fatal("the kernel never gets the latest state of the namespace")
		}
	}
	if log := w.log.String(); strings.Count(log, "changes too much") != 1 || !strings.Contains(log, "namespace=tenant service=large") {
		t.Errorf("want one line about it:\n%s", log)
	}
}

// TestWhatCounts: what counts is the sum of all ports of a Service, what it changes at others whose frontends it takes, and
// planning that changes nothing. Whoever it is done to does not wait.
func TestWhatCounts(t *testing.T) {
	for name, test := range map[string]struct {
		takes  time.Duration // to plan a Service, and to hand the plan on
		change func(w *world, round int)
	}{
		"many ports with few endpoints each": {0, manyPorts},
		"a range that takes the ports of others": {0, func(w *world, round int) {
			thief := ofTenant(service("thief", "10.96.9.9", 1, "198.51.100.1"))
			if round%2 == 1 {
				thief.Ports[0].EndPort = 5000
			}
			w.store.SetService(thief, nil)
		}},
		"few changes that take the kernel long": {10 * time.Millisecond, func(w *world, round int) {
			w.store.SetService(ofTenant(service("wide", "10.96.9.9", 1, fmt.Sprintf("198.51.100.%d", round))), nil)
		}},
		"planning that changes nothing": {10 * time.Millisecond, func(w *world, _ int) {
			w.store.SetService(ofTenant(service("wide", "10.96.9.9", 1)), nil)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorldWith(func(o *Options) { o.Settings.Budgets.NamespaceElements = 10 * largeChanges })
				w.passes.planning.Since = func(time.Time) time.Duration { return test.takes }
				sellers(w)
				w.store.MarkSynced()
				w.mustApply(t)
				for round := 1; w.watcher.passes[len(w.watcher.passes)-1].Pauses == 0; round++ {
					if round > 20 {
						t.Fatal("no pause")
					}
					test.change(w, round)
					w.mustApply(t)
				}
				const who = `those of all others go on" namespace=`
				log := w.log.String()
				if strings.Count(log, who) != 1 || !strings.Contains(log, who+"tenant") {
					t.Errorf("who waits?\n%s", log)
				}
				if strings.HasPrefix(name, "few") && (!strings.Contains(log, "changes=2 ") || strings.Contains(log, "kernel=0s beside")) {
					t.Errorf("what did the kernel take?\n%s", log)
				}
			})
		})
	}
}

// manyPorts replaces 10 endpoints of each of 100 ports.
func manyPorts(w *world, round int) {
	svc, sl := ofTenant(service("wide", "10.96.9.9", 1)), slice("wide", "10.1.0.1")
	sl.Namespace, sl.Service.Namespace = "tenant", "tenant"
	svc.Ports, sl.Ports, sl.Endpoints = nil, nil, nil
	for i := range 100 {
		port := uint16(1000 + i)
		svc.Ports = append(svc.Ports, state.ServicePort{Name: fmt.Sprint("p", i), Protocol: state.TCP, Port: port})
		sl.Ports = append(sl.Ports, state.SlicePort{Name: fmt.Sprint("p", i), Protocol: state.TCP, Port: port})
	}
	for i := range 10 {
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, byte(round), byte(1 + i)}), Ready: true})
	}
	w.store.Together(func() { w.store.SetService(svc, nil); w.store.SetSlice(sl, nil) })
}

// sellers puts 100 Services with 20 ports each at one address.
func sellers(w *world) {
	for i := range 100 {
		svc := service(fmt.Sprint("seller", i), fmt.Sprintf("10.96.8.%d", 1+i), 2, "198.51.100.1")
		svc.Namespace, svc.Ports = "shop", nil
		for j := range 20 {
			svc.Ports = append(svc.Ports, state.ServicePort{Name: fmt.Sprint("p", j), Protocol: state.TCP, Port: uint16(1000 + 20*i + j)})
		}
		w.store.SetService(svc, nil)
	}
}

func (w *world) mustApply(t *testing.T) {
	t.Helper()
	if err := w.pass(); err != nil {
		t.Fatal(err)
	}
}

func ofTenant(svc *state.Service) *state.Service {
	svc.Namespace = "tenant"
	return svc
}

// TestFrontendsMoveInPauses: a frontend that changes its owner goes and comes in one transaction, although the namespace that loses
// it, or gets it back, has to wait. Whoever moved it pays.
func TestFrontendsMoveInPauses(t *testing.T) {
	w := newWorld(t)
	const at = "198.51.100.1"
	victim := service("victim", "10.96.8.1", 2, at)
	victim.Namespace = "shop"
	w.store.SetService(victim, nil)
	w.store.MarkSynced()
	w.mustApply(t)
	w.store.Hold("shop", time.Hour)
	expect := func(step, owner string) {
		t.Helper()
		w.mustApply(t)
		for port, addrs := range w.rules.frontends(t) {
			if slices.Contains(addrs, at) != (port == owner) {
				t.Errorf("%s: %s has %v", step, port, addrs)
			}
		}
		if p := w.watcher.passes[len(w.watcher.passes)-1]; p.Result.Transactions[kernel.Applied] != 1 {
			t.Errorf("%s: %d transactions", step, p.Result.Transactions[kernel.Applied])
		}
	}
	thief := ofTenant(service("thief", "10.96.9.9", 1, at))
	w.store.SetService(thief, nil)
	expect("taken", "tenant/thief:http")
	w.store.DeleteService(thief.Name)
	expect("given back", "shop/victim:http")
	if seconds := w.passes.accounts.Seconds(); seconds["tenant"] <= 0 || seconds["shop"] > 0 {
		t.Errorf("they pay %v", seconds)
	}
}
