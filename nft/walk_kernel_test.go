//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
)

func (n *namespace) tables(t testing.TB) *inspect.Tables {
	t.Helper()
	tables, err := inspect.OpenTables(kernel.Options{NetNS: n.Fd()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tables.Close() })
	return tables
}

// TestWalkInKernel reads the same from the kernel as from a kernel in memory.
func TestWalkInKernel(t *testing.T) {
	for _, x := range examples() {
		n := newNamespace(t)
		x.install(t, n.engine(t))
		x.checkWalk(t, n.tables(t))
	}
}

// TestWalkPredicts: where an endpoint is certain, by a hash of the client's address or by its affinity entry, the packet
// goes there.
func TestWalkPredicts(t *testing.T) {
	forEachKind(t, func(t *testing.T, top *topology, e *Engine, f program.Family, protocol uint8) {
		ports := hashPorts(f, protocol, podNames[:]...)
		for i := range ports {
			ports[i].Affinity = time.Duration(i) * time.Hour
		}
		ports[2].Method = program.Random
		mustSet(t, e, ports...)
		mustApply(t, e)
		tables := top.node.tables(t)
		for i := range uint16(len(ports)) {
			top.checkPredictions(t, tables, f, protocol, netip.AddrPortFrom(serviceIP(f, 1), 80+i), i == 2)
			top.checkPredictions(t, tables, f, protocol, netip.AddrPortFrom(externalIP(f, 2), 80+i), i == 2)
		}
	})
}

func (top *topology) checkPredictions(t *testing.T, tables *inspect.Tables, f program.Family, protocol uint8, to netip.AddrPort, after bool) {
	t.Helper()
	if after { // only the affinity entry makes it certain
		top.askAll(t, f, protocol, to)
	}
	// Each walk reads a whole hash table from the kernel, so a few clients are enough.
	const step = 6
	predicted := make([]netip.AddrPort, clients)
	for i := 0; i < clients; i += step {
		p := inspect.Packet{Src: oneOfManyClients(f, i), Dst: to.Addr(), Protocol: protocol, DstPort: to.Port(), Interface: "outside"}
		got, err := tables.Walk("prerouting", "nat", p)
		if err != nil || got.Pick == nil {
			t.Fatalf("client %d to %s: %+v, %v", i, to, got, err)
		}
		predicted[i] = got.Pick.Chosen
	}
	for i, seat := range top.askAll(t, f, protocol, to) {
		if want := netip.AddrPortFrom(podIP(f, seat.pod), seat.port); i%step == 0 && predicted[i] != want {
			t.Errorf("client %d to %s: predicted %s, went to %s", i, to, predicted[i], want)
		}
	}
}

// BenchmarkWalk shows that a walk costs the same whatever the number of service ports.
func BenchmarkWalk(b *testing.B) {
	for _, services := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			n := newNamespace(b)
			growing(b, n.engine(b), program.IPv4, 0, services, 10)
			for b.Loop() {
				tables, err := inspect.OpenTables(kernel.Options{NetNS: n.Fd()})
				if err != nil {
					b.Fatal(err)
				}
				got, err := tables.Walk("prerouting", "nat", inspect.Packet{
					Src: addr("192.0.2.1"), Dst: numbered4or6(program.IPv4, 20, services/2), Protocol: tcp, DstPort: 80, Interface: "eth0",
				})
				if err != nil || got.Fate != inspect.Translated {
					b.Fatal(got, err)
				}
				tables.Close()
			}
		})
	}
}
