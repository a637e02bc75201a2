//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestPortHash: a hash of the client's address and port decides. So clients behind one address are spread, and a walk
// predicts where each port goes.
func TestPortHash(t *testing.T) {
	forEachKind(t, func(t *testing.T, top *topology, e *Engine, f program.Family, protocol uint8) {
		if protocol == sctp {
			return // the ports of raw sockets are not those of the protocol
		}
		port := hashPorts(f, protocol, podNames[:]...)[0]
		port.Method = program.SourcePortHash
		mustSet(t, e, port)
		mustApply(t, e)
		tables := top.node.tables(t)
		q := question(protocol, netip.AddrPortFrom(serviceIP(f, 1), 80))
		q.From = oneOfManyClients(f, 1)
		pods := map[string]bool{}
		for i := range uint16(20) {
			from := 40000 + i
			way, err := tables.Walk("prerouting", "nat", inspect.Packet{
				Src: q.From, SrcPort: from, Dst: q.To.Addr(), Protocol: protocol, DstPort: q.To.Port(), Interface: "outside",
			})
			if err != nil || way.Pick == nil {
				t.Fatalf("port %d: %+v, %v", from, way, err)
			}
			q.Ports = lab.PortRange{Low: from, High: from}
			r := top.At(t, lab.Outside).Ask(q)
			if r.Outcome != lab.Answered || podIP(f, r.Answer.Pod) != way.Pick.Chosen.Addr() {
				t.Fatalf("port %d: predicted %s, and got %s", from, way.Pick.Chosen, r)
			}
			pods[r.Answer.Pod] = true
		}
		if len(pods) != len(podNames) {
			t.Errorf("20 ports of a client reach only %s", fmt.Sprint(pods))
		}
		way, err := tables.Walk("prerouting", "nat", inspect.Packet{Src: q.From, Dst: q.To.Addr(), Protocol: protocol, DstPort: 80, Interface: "outside"})
		if err != nil || way.Pick == nil || way.Pick.Chosen.IsValid() {
			t.Errorf("without a port, a walk chose an endpoint: %+v, %v", way.Pick, err)
		}
	})
}
