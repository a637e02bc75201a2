//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

// hashPorts are three ports of a Service, whose target ports differ, and the same frontends with policy Local.
func hashPorts(f program.Family, protocol uint8, pods ...string) (ports []contents.Port) {
	for i := range uint16(3) {
		p := contents.Port{Family: f, Name: fmt.Sprintf("test/hash:p%d-%s", i, protocolName(protocol)), Protocol: protocol, Method: program.SourceHash}
		for _, pod := range pods {
			at := podEndpoint(f, pod, firstPodPort+i)
			p.Cluster = append(p.Cluster, at)
			if at.Local {
				p.Local = append(p.Local, at)
			}
		}
		p.Frontends = []contents.Frontend{
			{Addr: serviceIP(f, 1), Port: 80 + i, ClusterIP: true, Pool: program.ClusterPool},
			{Addr: externalIP(f, 2), Port: 80 + i, Pool: program.BySource, Masquerade: contents.MasqueradeNode},
			{Port: 30001 + i, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways},
		}
		ports = append(ports, p)
	}
	return ports
}

// pods leaves out the ports at which the pods answered.
func (s seats) pods() seats {
	out := seats{}
	for i, at := range s {
		out[i] = answerer{pod: at.pod}
	}
	return out
}

// TestHashAcrossPorts: a client has the same endpoint address at all ports of a Service, and keeps it when another
// endpoint goes, when one port gets other endpoints for a while, and when the tables are written anew.
func TestHashAcrossPorts(t *testing.T) {
	forEachKind(t, func(t *testing.T, top *topology, e *Engine, f program.Family, protocol uint8) {
		at := func(i uint16) netip.AddrPort { return netip.AddrPortFrom(serviceIP(f, 1), 80+i) }
		set := func(pods ...string) {
			mustSet(t, e, hashPorts(f, protocol, pods...)...)
			mustApply(t, e)
		}
		set(podNames[:]...)
		first := top.askAll(t, f, protocol, at(0))
		for i, seat := range first {
			if seat.port != firstPodPort {
				t.Fatalf("client %d is at port %d", i, seat.port)
			}
		}
		for i := range uint16(3) {
			second := top.askAll(t, f, protocol, at(i))
			first.pods().expectSame(t, second.pods(), "at another port")
			if second[0].port != firstPodPort+i {
				t.Fatalf("port %d leads to port %d of the pods", at(i).Port(), second[0].port)
			}
		}
		first.pods().expectSame(t, top.askAll(t, f, protocol, netip.AddrPortFrom(nodeAddr(f), 30003)).pods(), "over the node port")
		for i, seat := range top.askAll(t, f, protocol, netip.AddrPortFrom(externalIP(f, 2), 81)) {
			if seat.pod == podNames[2] || seat.port != firstPodPort+1 {
				t.Fatalf("policy Local: client %d is at %v", i, seat)
			}
		}

		mustSet(t, e, hashPorts(f, protocol, podNames[0])[1])
		mustApply(t, e)
		first.pods().expectSame(t, top.askAll(t, f, protocol, at(2)).pods(), "when another port has other endpoints")
		set(podNames[:]...)
		first.pods().expectSame(t, top.askAll(t, f, protocol, at(1)).pods(), "when it has the same ones again")

		set(podNames[0], podNames[2])
		stay := first.without(podEndpoint(f, podNames[1], firstPodPort))
		for i := range uint16(3) {
			after := top.askAll(t, f, protocol, at(i))
			if moved := stay.pods().moved(after.pods()); moved > 1 {
				t.Fatalf("port %d: %d of %d clients moved, although their endpoint stays", at(i).Port(), moved, len(stay))
			}
			if left := after.without(podEndpoint(f, podNames[1], firstPodPort+i)); len(left) != clients {
				t.Fatalf("port %d: clients are still at the endpoint that is gone", at(i).Port())
			}
		}
		e.distrust()
		before := top.askAll(t, f, protocol, at(0))
		mustApply(t, e)
		before.expectSame(t, top.askAll(t, f, protocol, at(0)), "after the tables were written anew")
		checkUnchanged(t, e)
	})
}

// checkUnchanged checks that the kernel has what the engine has in its ledger.
func checkUnchanged(t *testing.T, e *Engine) {
	t.Helper()
	r, err := e.Repair(kernel.Interference{Lost: true})
	// A dump of a set that the kernel resizes leaves out elements.
	for end := time.Now().Add(lab.Limit); err == nil && r.Added > 0 && time.Now().Before(end); {
		time.Sleep(20 * time.Millisecond)
		r, err = e.Repair(kernel.Interference{Lost: true})
	}
	if err != nil || r.Added+r.Deleted > 0 || r.Full {
		t.Fatalf("the kernel differs from the ledger: %+v, %v", r, err)
	}
	if intact, err := e.Intact(); !intact || err != nil {
		t.Fatalf("intact: %t, %v", intact, err)
	}
}

// TestHashClassChanges has clients connect without pause while the pools change their class and their tables, at once or when a table
// is written ahead, which may not be wanted any more before it is complete. No connection may fail.
func TestHashClassChanges(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	e.SetGlobals(packetGlobals())
	versions := [][]contents.Port{
		hashPorts(program.IPv4, udp, podNames[:]...), hashPorts(program.IPv4, udp, podNames[:2]...), hashPorts(program.IPv4, udp, podNames[0]),
		hashPorts(program.IPv4, udp, podNames[0]), hashPorts(program.IPv4, udp, podNames[0], podNames[2]),
	}
	for i := range versions[3] {
		versions[3][i].Method = program.Random
	}
	mixed := hashPorts(program.IPv4, udp, podNames[:]...)
	mixed[0].Cluster[0].Addr = netip.AddrPortFrom(mixed[0].Cluster[0].Addr.Addr(), firstPodPort+1)
	versions = append(versions, mixed)
	mustSet(t, e, versions[0]...)
	mustApply(t, e)
	done := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		q := question(udp, netip.AddrPortFrom(serviceIP(program.IPv4, 1), 80))
		err := top.At(t, lab.Outside).Do(func() error {
			for i := 0; ; i++ {
				select {
				case <-done:
					return nil
				default:
				}
				q.From = oneOfManyClients(program.IPv4, i%200)
				if r := lab.Ask(q); r.Outcome != lab.Answered {
					return fmt.Errorf("connection %d: %s", i, r)
				}
			}
		})
		if err != nil {
			failed <- err
		}
	}()
	for i := range 300 {
		e.piece = i % 2 * piece
		mustSet(t, e, versions[(i*7+1)%len(versions)]...)
		for mustApply(t, e); i%3 > 0 && len(waiting(e)) > 0; mustApply(t, e) {
		}
	}
	close(done)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
}
