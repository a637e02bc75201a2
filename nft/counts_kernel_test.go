//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestTraffic connects, and reads what the kernel counted.
func TestTraffic(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	e.SetGlobals(packetGlobals())
	for _, f := range program.Families() {
		sticky := stickyPort(f, tcp, time.Hour)
		sticky.Frontends[0].HoldsRefusals = true
		mustSet(t, e, sticky)
		mustSet(t, e, contents.Port{Family: f, Name: "test/empty:TCP", Protocol: tcp, Frontends: []contents.Frontend{
			{Addr: serviceIP(f, 6), Port: 80, ClusterIP: true, Refusal: program.Reject},
		}})
	}
	mustApply(t, e)
	o := kernel.Options{NetNS: top.node.Fd()}
	for _, f := range program.Families() {
		top.askMany(t, f, tcp, netip.AddrPortFrom(serviceIP(f, 1), 80), 0, 5)
		top.expectOutcome(t, lab.Outside, question(tcp, netip.AddrPortFrom(serviceIP(f, 6), 80)), lab.Refused)
		entries, err := inspect.ReadAffinity(o)
		if err != nil || len(entries) != 2 {
			t.Fatalf("affinity %+v, error %v", entries, err)
		}
		if a := entries[f.Index()]; a.Family != f || a.Size != program.DefaultAffinitySize || a.Entries != 5 && a.Entries != -1 {
			t.Errorf("5 clients, but affinity %+v", a)
		}
	}
	list, err := inspect.Counters(o, time.Minute, nil)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]uint64{}
	for i := range list {
		fe := &list[i]
		seen[fe.Family.String()+" services "+fe.Name] += fe.Connections
		seen[fe.Family.String()+" no-endpoints "+fe.Name] += fe.Refused
	}
	for _, f := range program.Families() {
		if n := seen[f.String()+" services test/sticky:TCP"]; n != 5 {
			t.Errorf("%s: %d connections, want 5, in %v", f, n, seen)
		}
		if n := seen[f.String()+" no-endpoints test/empty:TCP"]; n != 1 {
			t.Errorf("%s: %d refused, want 1, in %v", f, n, seen)
		}
	}
	if _, err := inspect.Counters(o, -time.Second, nil); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("no time: %v", err)
	}
}

// TestTrafficOfIPVS lists what IPVS serves, with the names of the service ports.
func TestTrafficOfIPVS(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	e.SetGlobals(contents.Globals{IPVS: true})
	type frontend struct {
		family program.Family
		addr   netip.Addr
		port   uint16
		name   string
	}
	want := map[frontend]bool{}
	for _, f := range program.Families() {
		name := "test/" + f.String() + ":TCP"
		mustSet(t, e, contents.Port{Family: f, Name: name, Protocol: tcp, Frontends: []contents.Frontend{
			{Addr: serviceIP(f, 1), Port: 80, ClusterIP: true, IPVS: true}, {Port: 30080, IPVS: true},
		}})
		want[frontend{f, serviceIP(f, 1), 80, name}], want[frontend{f, netip.Addr{}, 30080, name}] = true, true
	}
	mustSet(t, e, manyPorts(program.IPv4, 0, 2)...)
	mustApply(t, e)
	list, err := inspect.Counters(kernel.Options{NetNS: n.Fd()}, time.Minute, nil)
	list = slices.DeleteFunc(list, func(fe inspect.FrontendStatus) bool { return !fe.IPVS })
	if err != nil || len(list) != len(want) {
		t.Errorf("%d frontends, want %d; %v", len(list), len(want), err)
	}
	for _, fe := range list {
		if !want[frontend{fe.Family, fe.Addr, fe.Port, fe.Name}] {
			t.Errorf("not wanted: %+v", fe)
		}
	}
}

// TestNoTables: there is nothing to read before the first Apply.
func TestNoTables(t *testing.T) {
	ns := newNamespace(t)
	entries, err := inspect.ReadAffinity(kernel.Options{NetNS: ns.Fd()})
	if err != nil || len(entries) != 0 {
		t.Errorf("affinity %v, error %v", entries, err)
	}
	traffic, err := inspect.Counters(kernel.Options{NetNS: ns.Fd()}, time.Minute, nil)
	if err != nil || len(traffic) != 0 {
		t.Errorf("traffic %v, error %v", traffic, err)
	}
}

// BenchmarkCounters reads the counters of all frontends, as a scrape does. 2,000 is the default of
// --max-counted-frontends: with 20,000 a scrape takes 25 times as long as with 2,000, because the kernel walks a set from its
// beginning for each part of the answer.
func BenchmarkCounters(b *testing.B) {
	for _, n := range []int{200, 2000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ns := newNamespace(b)
			e := ns.engine(b)
			mustSet(b, e, manyPorts(program.IPv4, 0, n)...)
			mustApply(b, e)
			for b.Loop() {
				list, err := inspect.Counters(kernel.Options{NetNS: ns.Fd()}, time.Minute, nil)
				if err != nil || len(list) < n {
					b.Fatalf("%d counters, error %v", len(list), err)
				}
			}
		})
	}
}
