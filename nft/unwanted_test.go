//go:build !nokernel

package nft

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// overTheLimit gives a port more slots than a pool can have.
func overTheLimit(p contents.Port) contents.Port {
	p.Cluster = podEndpoints(p.Family, podNames[:]...)
	for i := range p.Cluster {
		p.Cluster[i].Slots = program.MaxSlots / 2
	}
	return p
}

// without removes frontends from a port.
func without(p contents.Port, at ...contents.Frontend) contents.Port {
	p.Frontends = slices.DeleteFunc(slices.Clone(p.Frontends), func(fe contents.Frontend) bool {
		return slices.ContainsFunc(at, func(a contents.Frontend) bool { return a.Addr == fe.Addr && a.Port == fe.Port })
	})
	return p
}

// mustLimit sets a port that meets a limit.
func mustLimit(t *testing.T, e *Engine, p contents.Port) {
	t.Helper()
	if err := e.Set(&p); err == nil {
		t.Fatalf("%s is accepted beyond the limit, without an error", p.Name)
	}
}

// TestFrontendsOfLimitedPort has a port that meets a limit, and whose frontends now belong to another port. The port
// must lose them; otherwise, the kernel would refuse every later transaction, even for other ports.
func TestFrontendsOfLimitedPort(t *testing.T) {
	for name, order := range map[string]func(loses, takes func()){
		"loses first": func(loses, takes func()) { loses(); takes() },
		"takes first": func(loses, takes func()) { takes(); loses() },
	} {
		t.Run(name, func(t *testing.T) {
			top, e := servesContested(t)
			for _, f := range program.Families() {
				ports := contested(f)
				order(func() { mustLimit(t, e, overTheLimit(without(ports[0], ports[1].Frontends...))) },
					func() { mustSet(t, e, ports[1]) })
			}
			if r := mustApply(t, e); r.Full {
				t.Fatal("the tables were written as a whole")
			}
			top.checkContested(t)
			fresh := newNamespace(t)
			fresh.load(t, e.render())
			compareListings(t, "the kernel differs from the ledger", top.node.list(t), fresh.list(t))

			e.distrust()
			mustApply(t, e)
			top.checkContested(t)
		})
	}
}

// contested are two ports. The first one begins with three frontends, and the second one takes two of them.
func contested(f program.Family) [2]contents.Port {
	cluster := contents.Frontend{Addr: serviceIP(f, 1), Port: 80, ClusterIP: true, Pool: program.ClusterPool}
	outside := contents.Frontend{Addr: externalIP(f, 1), Port: 80, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways}
	node := contents.Frontend{Port: 30001, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways}
	return [2]contents.Port{
		{Family: f, Name: "test/loses:p", Protocol: tcp, Cluster: podEndpoints(f, "a"), Frontends: []contents.Frontend{cluster, outside, node}},
		{Family: f, Name: "test/takes:p", Protocol: tcp, Cluster: podEndpoints(f, "b"), Frontends: []contents.Frontend{outside, node}},
	}
}

// servesContested has an engine that serves the first port, in both families.
func servesContested(t *testing.T) (*topology, *Engine) {
	t.Helper()
	top := newTopology(t)
	e := top.node.engine(t)
	e.SetGlobals(packetGlobals())
	for _, f := range program.Families() {
		mustSet(t, e, contested(f)[0])
	}
	mustApply(t, e)
	return top, e
}

// checkContested connects to the first port, beyond its limit, and to the second one.
func (top *topology) checkContested(t *testing.T) {
	t.Helper()
	for _, f := range program.Families() {
		top.checkServed(t, f, tcp, probe{from: lab.Outside, to: netip.AddrPortFrom(serviceIP(f, 1), 80), pods: podNames[:], masqueraded: true})
		for _, to := range []netip.AddrPort{netip.AddrPortFrom(externalIP(f, 1), 80), netip.AddrPortFrom(nodeAddr(f), 30001)} {
			top.checkServed(t, f, tcp, probe{from: lab.Outside, to: to, pods: []string{"b"}, masqueraded: true})
		}
	}
}

// TestProtocolOfLimitedPort changes the protocol of a port and its endpoints, beyond a limit. The port loses the
// frontends of the old protocol, and another port takes them.
func TestProtocolOfLimitedPort(t *testing.T) {
	top, e := servesContested(t)
	for _, f := range program.Families() {
		changed, heir := overTheLimit(contested(f)[0]), contested(f)[0]
		changed.Protocol = udp
		mustLimit(t, e, changed)
		heir.Name, heir.Cluster = "test/heir:p", podEndpoints(f, "c")
		mustSet(t, e, heir)
	}
	mustApply(t, e)
	for _, f := range program.Families() {
		to := netip.AddrPortFrom(serviceIP(f, 1), 80)
		top.checkServed(t, f, tcp, probe{from: lab.Outside, to: to, pods: []string{"c"}, masqueraded: true})
		top.checkServed(t, f, udp, probe{from: lab.Outside, to: to, pods: podNames[:], masqueraded: true})
	}
	for _, p := range []contents.Port{contested(program.IPv4)[0], contested(program.IPv6)[0]} {
		p.Protocol = udp
		mustSet(t, e, p) // within the limit again
	}
	mustApply(t, e)
	for _, f := range program.Families() {
		to := netip.AddrPortFrom(serviceIP(f, 1), 80)
		top.checkServed(t, f, udp, probe{from: lab.Outside, to: to, pods: []string{"a"}, masqueraded: true})
	}
}
