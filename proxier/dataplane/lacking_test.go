package dataplane

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// lacking is a host that cannot have the addresses of frontends.
type lacking struct{ *onDevice }

func (lacking) Missing(netip.Addr, string) string { return "another host has it" }
func (lacking) Changed() []state.Name             { return []state.Name{web} }

// TestLackingAddress: a problem names the Service whose address the host lacks. The Service is planned again when that changes.
func TestLackingAddress(t *testing.T) {
	w := newWorld(t, false)
	w.addresses = lacking{&onDevice{&w.journal, map[state.Name][]netip.Addr{}}}
	w.ask("random", "192.0.2.10")
	list := w.problems[web]
	if len(list) == 0 || slices.ContainsFunc(list, func(p state.Problem) bool { return p.Object != web }) {
		t.Errorf("problems %+v", list)
	}
	if r := w.Tick(); !slices.Contains(r.Replan, web) {
		t.Errorf("planned again: %v", r.Replan)
	}
}

// TestAddressList: an error names one address and counts the others.
func TestAddressList(t *testing.T) {
	if got := addressList(addrs("10.96.0.1", "10.96.0.2", "10.96.0.3")); got != "10.96.0.1 and 2 more addresses" {
		t.Error(got)
	}
}
