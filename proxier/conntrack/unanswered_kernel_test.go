//go:build !nokernel

package conntrack

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestDeleteUnanswered deletes the connections from one frontend to a silent endpoint. Connections with an answer, and
// those of another frontend to the same endpoint, stay.
func TestDeleteUnanswered(t *testing.T) {
	for _, f := range lab.Families() {
		t.Run(f.String(), func(t *testing.T) {
			w := lab.New(t)
			vip := func(name string) netip.AddrPort {
				a, err := lab.Lookup(f, name)
				if err != nil {
					t.Fatal(err)
				}
				return netip.AddrPortFrom(a, 80)
			}
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
			list := []Unanswered{
				{Endpoint: dead, Frontends: []Frontend{{Addr: silent.Addr(), Port: 80, Family: of}}},
				{Endpoint: alive, Frontends: []Frontend{{Addr: answers.Addr(), Port: 80, Family: of}}},
			}
			if n, err := DeleteUnanswered(Options{NetNS: w.Node.Fd()}, list, nil); n != 3 || err != nil {
				t.Errorf("%d connections were deleted, %v; wanted 3", n, err)
			}
			for to, want := range map[netip.AddrPort]int{silent: 0, other: 1, answers: 1} {
				if n := count(t, w, f, to); n != want {
					t.Errorf("%d connections to %s are left; wanted %d", n, to, want)
				}
			}
		})
	}
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
