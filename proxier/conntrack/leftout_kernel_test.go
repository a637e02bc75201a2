//go:build !nokernel

package conntrack

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestUnansweredAreDeleted deletes the connections from one frontend to a silent endpoint that is left out. Connections with an answer, and
// those of another frontend to the same endpoint, stay.
func TestUnansweredAreDeleted(t *testing.T) {
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) {
			w := lab.New(t)
			vip := func(name string) netip.AddrPort { return lab.AddressPort(f, name, 80) }
			silent, other, answers := vip("VIP1"), vip("VIP2"), vip("VIP3")
			dead, alive := netip.AddrPortFrom(lab.PodAddress(f, "c"), 8080), netip.AddrPortFrom(lab.PodAddress(f, "a"), 8080)
			family := map[lab.Family]string{lab.IPv4: "ip", lab.IPv6: "ip6"}[f]
			rules := ""
			for from, to := range map[netip.AddrPort]netip.AddrPort{silent: dead, other: dead, answers: alive} {
				rules += fmt.Sprintf("%s daddr %s tcp dport 80 dnat to %s\n", family, from.Addr(), to)
			}
			w.Node.Must(t, "table "+family+" t {\nchain c {\ntype nat hook prerouting priority -100;\n"+rules+"}\n}\n", "nft", "-f", "-")
			w.At(t, "c").Must(t, "table inet s {\nchain c {\ntype filter hook input priority 0;\nmeta l4proto tcp drop\n}\n}\n", "nft", "-f", "-")
			carriedByIPVS(t, w, f, silent, dead)
			x := w.At(t, lab.Outside)
			x.Hold(t, lab.Question{Protocol: lab.TCP, To: answers, Patience: 30 * time.Second})
			for _, to := range []netip.AddrPort{silent, silent, other} {
				if r := x.Ask(lab.Question{Protocol: lab.TCP, To: to, Patience: 200 * time.Millisecond}); r.Outcome != lab.Dropped {
					t.Fatalf("%s: %s", to, r)
				}
			}
			of := state.IPv4
			if f == lab.IPv6 {
				of = state.IPv6
			}
			tr := NewTracker()
			for to, endpoint := range map[netip.AddrPort]netip.AddrPort{silent: dead, answers: alive} {
				tr.Set(state.Name{Namespace: "shop", Name: to.String()}, leavesOut(of, to, endpoint))
			}
			c, err := Open(Options{NetNS: w.Node.Fd()})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }() // nothing is written
			results, err := c.Clean(tr.LeftOut(slices.Collect(maps.Keys(tr.WaitingLeftOut()))...), nil)
			if err != nil || len(results) != 1 || results[0].Unanswered != 3 {
				t.Errorf("%+v, %v; wanted 3 connections deleted", results, err)
			}
			if tr.Done(); !empty(tr) {
				t.Error("there is something to look for after the cleaning")
			}
			for to, want := range map[netip.AddrPort]int{silent: 0, other: 1, answers: 1} {
				if n := count(t, w, f, to); n != want {
					t.Errorf("%d connections to %s are left; wanted %d", n, to, want)
				}
			}
		})
	}
}

// leavesOut is the plan of a Service that leaves its only endpoint out.
func leavesOut(family state.Family, at, endpoint netip.AddrPort) *plan.Service {
	return &plan.Service{
		Ports: []plan.Port{{
			Family: family, Protocol: state.TCP, Frontends: []plan.Frontend{{Frontend: serviceport.Frontend{Addr: at.Addr(), Port: at.Port()}}},
		}},
		Choices: []plan.Choice{{Protocol: state.TCP, At: endpoint, Use: plan.Ejected}},
	}
}

func empty(tr *Tracker) bool {
	return len(tr.Waiting())+len(tr.WaitingLeftOut()) == 0
}

// carriedByIPVS adds a connection as IPVS leaves it: not translated by NAT rules, and expecting answers of the endpoint.
func carriedByIPVS(t *testing.T, w *lab.World, f lab.Family, to, endpoint netip.AddrPort) {
	t.Helper()
	client := netip.AddrPortFrom(lab.PodAddress(f, "b"), 40000)
	w.Node.Must(t, "", "conntrack", "-I", "-p", "tcp", "--state", "SYN_SENT", "-t", "100",
		"-s", client.Addr().String(), "--sport", fmt.Sprint(client.Port()), "-d", to.Addr().String(), "--dport", fmt.Sprint(to.Port()),
		"-r", endpoint.Addr().String(), "--reply-port-src", fmt.Sprint(endpoint.Port()),
		"-q", client.Addr().String(), "--reply-port-dst", fmt.Sprint(client.Port()))
}

func count(t *testing.T, w *lab.World, f lab.Family, to netip.AddrPort) (n int) {
	t.Helper()
	flows, err := w.Node.Flows(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, flow := range flows {
		if flow.To == to {
			n++
		}
	}
	return n
}
