//go:build !nokernel

package nft

import (
	"fmt"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// connections is the number of connections in each case of TestEvenness.
const connections = 4000

// TestEvenness makes connections to service ports of every class. It compares the number of connections of each
// endpoint with its share, by a chi-square test that a fair draw fails once in 10,000,000,000 times.
func TestEvenness(t *testing.T) {
	tests := []struct {
		name      string
		method    program.Method
		affinity  time.Duration
		endpoints int
		heavy     uint16 // slots of the first endpoint
	}{
		{name: "seven endpoints", endpoints: 7},
		{name: "more endpoints than there are exact draws", endpoints: 21},
		{name: "one endpoint of three shares", endpoints: 7, heavy: 3},
		{name: "in turn", method: program.InTurn, endpoints: 7},
		{name: "in turn, more endpoints than there are exact draws", method: program.InTurn, endpoints: 21},
		{name: "sticky clients", affinity: time.Hour, endpoints: 7},
		{name: "more sticky endpoints than there are exact draws", affinity: time.Hour, endpoints: 21},
	}
	top := newTopology(t)
	for i := len(lab.Ports()); i < 21; i++ { // pods answer at the first few ports already
		pod := podNames[i%2]
		if err := top.Serve(pod, pod, firstPodPort+uint16(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range program.Families() {
		for _, test := range tests {
			t.Run(f.String()+"/"+test.name, func(t *testing.T) {
				top.startOver(t)
				e := top.node.engine(t)
				port := contents.Port{Family: f, Name: "test/even:http", Protocol: udp, Method: test.method, Affinity: test.affinity,
					Frontends: []contents.Frontend{{Addr: serviceIP(f, 1), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}}
				for i := range test.endpoints {
					endpoint := podEndpoint(f, podNames[i%2], firstPodPort+uint16(i))
					endpoint.Slots = 1
					port.Cluster = append(port.Cluster, endpoint)
				}
				sortEndpoints(port.Cluster)
				port.Cluster[0].Slots = max(1, test.heavy)
				mustSet(t, e, port)
				mustApply(t, e)
				got := top.countConnections(t, f, netip.AddrPortFrom(serviceIP(f, 1), 80))
				checkSpread(t, port.Cluster, got)
			})
		}
	}
}

// countConnections connects once from each of many clients. It counts by the port of the endpoint, which is unique.
func (top *topology) countConnections(t *testing.T, f program.Family, to netip.AddrPort) map[uint16]int {
	t.Helper()
	got := map[uint16]int{}
	q := question(udp, to)
	top.At(t, lab.Outside).MustDo(t, func() error {
		for i := range connections {
			q.From = oneOfManyClients(f, i)
			r := lab.Ask(q)
			if r.Outcome != lab.Answered {
				return fmt.Errorf("connection %d: %s", i, r)
			}
			got[r.Answer.Port]++
		}
		return nil
	})
	return got
}

func checkSpread(t *testing.T, endpoints []contents.Endpoint, got map[uint16]int) {
	t.Helper()
	slots := 0
	for _, e := range endpoints {
		slots += int(e.Slots)
	}
	sum := 0.0
	for _, e := range endpoints {
		expected := float64(connections) * float64(e.Slots) / float64(slots)
		off := float64(got[e.Addr.Port()]) - expected
		sum += off * off / expected
	}
	z := normalDeviate(sum, len(endpoints)-1)
	t.Logf("chi-square %.1f with %d degrees of freedom (%.2f standard deviations): %v", sum, len(endpoints)-1, z, got)
	if z > 6.36 { // p < 1e-10
		t.Errorf("the numbers of connections do not match the shares")
	}
}

// normalDeviate turns a chi-square value into standard deviations (Wilson and Hilferty, 1931).
func normalDeviate(chiSquare float64, freedom int) float64 {
	v := 2.0 / (9 * float64(freedom))
	return (math.Cbrt(chiSquare/float64(freedom)) - 1 + v) / math.Sqrt(v)
}

func TestNormalDeviate(t *testing.T) {
	// From tables: the value that chance exceeds once in 10,000 times.
	for freedom, chiSquare := range map[int]float64{6: 27.86, 20: 52.39} {
		if z := normalDeviate(chiSquare, freedom); math.Abs(z-3.719) > 0.06 {
			t.Errorf("%d degrees of freedom: %.3f standard deviations, wanted 3.719", freedom, z)
		}
	}
}

// TestSourceHash connects twice from each client. The client gets the same endpoint again, although the node does not
// remember the client. The same holds after another endpoint was removed, and after a restart.
func TestSourceHash(t *testing.T) {
	forEachKind(t, func(t *testing.T, top *topology, e *Engine, f program.Family, protocol uint8) {
		port := stickyPort(f, protocol, 0)
		port.Method = program.SourceHash
		// More than one table of 4,093 slots does not fit in the socket buffer of an ordinary user.
		port.Cluster, port.Local, port.Frontends = port.Cluster[:9], nil, port.Frontends[:1]
		mustSet(t, e, port)
		mustApply(t, e)
		first := top.askAll(t, f, protocol, places(f)[0])
		first.expectSame(t, top.askAll(t, f, protocol, places(f)[0]), "at the second visit")

		gone := port.Cluster[3]
		port.Cluster = append(port.Cluster[:3:3], port.Cluster[4:]...)
		mustSet(t, e, port)
		mustApply(t, e)
		second := top.askAll(t, f, protocol, places(f)[0])
		if moved := first.without(gone).moved(second); moved > 2 {
			t.Fatalf("%d of %d clients moved, although their endpoints stayed", moved, clients)
		}
		restarted := top.node.engine(t)
		restarted.SetGlobals(packetGlobals())
		mustSet(t, restarted, port)
		mustApply(t, restarted)
		second.expectSame(t, top.askAll(t, f, protocol, places(f)[0]), "after a restart")
	})
}
