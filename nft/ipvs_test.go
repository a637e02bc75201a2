//go:build !nokernel

package nft

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// guards lists the guarded addresses that the kernel has.
func (n *namespace) guards(t testing.TB) []string {
	t.Helper()
	var out []string
	for _, f := range program.Families() {
		text := n.nft(t, "list", "set", f.String(), program.TableName, program.IPVSAddresses.Name())
		_, rest, found := strings.Cut(text, "elements = {")
		if !found {
			continue
		}
		list, _, _ := strings.Cut(rest, "}")
		for word := range strings.SplitSeq(list, ",") {
			out = append(out, strings.TrimSpace(word))
		}
	}
	slices.Sort(out)
	return out
}

func (n *namespace) wantGuards(t testing.TB, when string, want ...string) {
	t.Helper()
	if got := n.guards(t); !slices.Equal(got, want) {
		t.Fatalf("%s: guarded are %v, want %v", when, got, want)
	}
}

// TestGuard follows guarded addresses through applies, rebuilds and a restart.
func TestGuard(t *testing.T) {
	n := newNamespace(t)
	e := n.engine(t)
	e.SetGlobals(contents.Globals{IPVS: true})
	mustGuard(t, e, false, "192.0.2.1", "2001:db8::1") // no table yet
	mustApply(t, e)
	n.wantGuards(t, "first apply", "192.0.2.1", "2001:db8::1")

	mustSet(t, e, manyPorts(program.IPv4, 0, 2)...)
	mustGuard(t, e, true, "192.0.2.1", "192.0.2.2")
	n.wantGuards(t, "before the apply", "192.0.2.1", "192.0.2.2", "2001:db8::1")
	if strings.Contains(n.list(t), "svc-0") {
		t.Fatal("the guard also applied collected changes")
	}
	if r := mustApply(t, e); r.Full || r.Added == 0 {
		t.Fatalf("the collected changes were lost: %+v", r)
	}

	e.Unguard(addrs("192.0.2.1", "203.0.113.9"))
	n.wantGuards(t, "unguarded, not applied", "192.0.2.1", "192.0.2.2", "2001:db8::1")
	mustGuard(t, e, true, "192.0.2.1")
	mustApply(t, e)
	n.wantGuards(t, "guarded again before the apply", "192.0.2.1", "192.0.2.2", "2001:db8::1")
	e.Unguard(addrs("192.0.2.1", "2001:db8::1"))
	mustApply(t, e)
	n.wantGuards(t, "unguarded", "192.0.2.2")

	again := n.engine(t) // another process, over the same table
	again.SetGlobals(contents.Globals{IPVS: true})
	mustGuard(t, again, true, "192.0.2.3")
	n.wantGuards(t, "restart, before the apply", "192.0.2.2", "192.0.2.3")
	mustApply(t, again)
	n.wantGuards(t, "restart", "192.0.2.3")
}

// TestGuardRefused loses a guard on its way to the kernel. The next Apply must write it.
func TestGuardRefused(t *testing.T) {
	for name, k := range map[string]*lossyKernel{"refused": {refuse: true}, "lost": {loseBatch: true}, "answer lost": {loseAnswer: true}} {
		t.Run(name, func(t *testing.T) {
			n := newNamespace(t)
			e := n.engine(t)
			mustApply(t, e)
			mustSet(t, e, manyPorts(program.IPv4, 0, 2)...)
			real := e.conn
			k.NFTables = real
			e.conn = k
			ready, err := e.Guard(addrs("192.0.2.1"))
			e.conn = real
			if ready || !errors.Is(err, errLost) && !errors.Is(err, unix.EBUSY) {
				t.Fatalf("ready %t, error %v", ready, err)
			}
			if r := mustApply(t, e); !r.Full {
				t.Fatal("the tables were not written as a whole")
			}
			n.wantGuards(t, "next apply", "192.0.2.1")
			if !strings.Contains(n.list(t), "svc-0") {
				t.Fatal("collected changes were lost")
			}
		})
	}
}

// TestGuardedPackets has frontends at addresses that are local to the node. A program on the node that listens on all
// addresses must not answer there.
func TestGuardedPackets(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	g := packetGlobals()
	g.IPVS = true
	e.SetGlobals(g)
	guarded := map[program.Family]netip.Addr{program.IPv4: addr("192.0.2.77"), program.IPv6: addr("2001:db8::77")}
	for f, a := range guarded {
		fe := contents.Frontend{Addr: a, Port: 4080, IPVS: true}
		mustSet(t, e, contents.Port{Family: f, Name: "ns/guarded:p", Protocol: tcp, Frontends: []contents.Frontend{fe}})
		top.own(t, a)
	}
	mustApply(t, e)
	top.serveOnNode(t, 4080) // stands in for IPVS
	top.serveOnNode(t, 4022) // a service of the node's own
	for _, a := range guarded {
		top.checkReachable(t, a, 4022)
	}
	mustGuard(t, e, true, guarded[program.IPv4].String(), guarded[program.IPv6].String())
	for _, a := range guarded {
		for _, from := range senders() {
			top.expectOutcome(t, from, question(tcp, netip.AddrPortFrom(a, 4022)), lab.Refused)
			top.expectOutcome(t, from, question(tcp, netip.AddrPortFrom(a, 4080)), lab.Answered)
		}
	}
}

// own makes an address the node's own.
func (top *topology) own(t *testing.T, a netip.Addr) {
	t.Helper()
	if err := top.Node.Own(netip.PrefixFrom(a, a.BitLen())); err != nil {
		t.Fatal(err)
	}
}

// serveOnNode listens on all addresses of the node.
func (top *topology) serveOnNode(t *testing.T, port uint16) {
	t.Helper()
	if err := top.Serve(lab.Node, lab.Node, port); err != nil {
		t.Fatal(err)
	}
}

// checkReachable connects before the guard; without an answer the test would prove nothing.
func (top *topology) checkReachable(t *testing.T, a netip.Addr, port uint16) {
	t.Helper()
	for _, from := range senders() {
		q := question(tcp, netip.AddrPortFrom(a, port))
		if r := top.At(t, from).Ask(q); r.Outcome != lab.Answered {
			t.Fatalf("%s from %s before the guard: %s; the test would prove nothing", q, from, r)
		}
	}
}

// TestGuardOverTableWithoutIPVS starts a process with IPVS over the tables of a process without IPVS. If Guard reports
// that the addresses are protected before the first Apply, the kernel must really protect them.
func TestGuardOverTableWithoutIPVS(t *testing.T) {
	top := newTopology(t)
	former := top.node.engine(t)
	former.SetGlobals(packetGlobals())
	mustApply(t, former)
	if err := former.Close(); err != nil {
		t.Fatal(err)
	}
	top.serveOnNode(t, 4022)
	guarded := map[program.Family]netip.Addr{program.IPv4: addr("192.0.2.77"), program.IPv6: addr("2001:db8::77")}
	for _, a := range guarded {
		top.own(t, a)
	}
	e := top.node.engine(t)
	g := packetGlobals()
	g.IPVS = true
	e.SetGlobals(g)
	for _, a := range guarded {
		top.checkReachable(t, a, 4022)
		mustGuard(t, e, true, a.String())
		for _, from := range senders() {
			top.expectOutcome(t, from, question(tcp, netip.AddrPortFrom(a, 4022)), lab.Refused)
		}
	}
}

// TestGuardWithoutRules has a table in which no rule looks up the guarded addresses.
func TestGuardWithoutRules(t *testing.T) {
	for _, f := range program.Families() {
		n := newNamespace(t)
		mustApply(t, n.engine(t))
		n.nft(t, "flush", "chain", f.String(), program.TableName, program.UnservedChain)
		e := n.engine(t)
		e.SetGlobals(contents.Globals{IPVS: true})
		mustGuard(t, e, false, "192.0.2.1", "2001:db8::1")
		mustApply(t, e)
		n.wantGuards(t, "after the apply", "192.0.2.1", "2001:db8::1")
	}
}
