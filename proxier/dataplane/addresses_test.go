package dataplane

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/addresses"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// onDevice notes what is asked of the addresses of the host.
type onDevice struct {
	journal *journal
	wanted  map[state.Name][]netip.Addr
}

func (a *onDevice) Set(service state.Name, list []netip.Addr) { a.wanted[service] = list }
func (a *onDevice) Withdraw(bool)                             {}
func (a *onDevice) Missing(netip.Addr, string) string         { return "" }
func (a *onDevice) Changed() []state.Name                     { return nil }
func (a *onDevice) Remove() []addresses.Failure               { a.journal.note("addresses leave"); return nil }
func (a *onDevice) Tick(time.Time) []addresses.Failure        { return nil }

func (a *onDevice) Add() []addresses.Failure {
	a.journal.note("%v", a.wanted[web])
	return nil
}

// TestOrderOfAddresses: the host gets an address when the rules for it are in the kernel, and loses it before the rules change.
// A pass that fails adds none.
func TestOrderOfAddresses(t *testing.T) {
	w := newWorld(t, false)
	w.addresses = &onDevice{&w.journal, map[state.Name][]netip.Addr{}}
	w.ask("random", "192.0.2.10")
	frontend := &w.services[web].Ports[0].Frontends[1]
	for _, step := range []struct {
		name, want string
		do         func()
	}{
		{"not good", "addresses leave, add, apply, remove, []", func() {}},
		{"good, but the kernel refuses", "addresses leave, add, apply refused", func() { frontend.Good, w.rules.fail = true, 1 }},
		{"good", "addresses leave, add, apply, remove, [192.0.2.10]", func() {}},
		{"good, but it has no endpoint on this node", "addresses leave, add, apply, remove, []", func() { frontend.Refusal = serviceport.Drop }},
		{"good again", "addresses leave, add, apply, remove, [192.0.2.10]", func() { frontend.Refusal = serviceport.NoRefusal }},
		{"a cluster IP", "addresses leave, add, apply, remove, []", func() { frontend.Kind = plan.ClusterIP }},
		{"an external IP", "addresses leave, add, apply, remove, [192.0.2.10]", func() { frontend.Kind = plan.ExternalIP }},
		{"the Service is gone", "addresses leave, add, apply, remove, []", func() { w.services[web] = &plan.Service{Name: web} }},
	} {
		step.do()
		w.set(web)
		w.pass(t, step.name, step.want)
	}
}

// TestPieces: while other Services follow, nothing goes that an earlier process left, and the host gets no address.
func TestPieces(t *testing.T) {
	w := newWorld(t, true)
	w.addresses = &onDevice{&w.journal, map[state.Name][]netip.Addr{}}
	for i, want := range []string{"guard [10.96.0.1], apply, add", "guard [10.96.0.1], add, apply", "guard [10.96.0.1 10.96.0.2], add, apply"} {
		if i == 2 {
			w.serve("other", "10.96.0.2", "lc")
		}
		w.journal = nil
		if r := w.ApplyPiece(); !r.Applied() || strings.Join(w.journal, ", ") != want {
			t.Errorf("piece %d: %v, error %v; want %s", i, w.journal, r.Err, want)
		}
	}
	w.pass(t, "the end", "addresses leave, guard [10.96.0.1 10.96.0.2], add, apply, remove, []")
}
