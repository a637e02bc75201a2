//go:build e2e

package deadnode

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

var frontend = netip.MustParseAddrPort("10.96.0.10:80")

// newPath is a path whose node has the program, with ten endpoints of a Service.
func newPath(b *testing.B, g contents.Globals, protocol uint8) *measure.Path {
	b.Helper()
	path := measure.NewPath(b)
	e, err := nft.Open(nft.Options{NetNS: path.Node.Fd()})
	lab.Must(b, err)
	b.Cleanup(func() { e.Close() })
	g.PodCIDRs = []netip.Prefix{netip.MustParsePrefix(measure.ClientRange)}
	e.SetGlobals(g)
	port := contents.Port{Family: program.IPv4, Name: "default/web:http", Protocol: protocol, Frontends: []contents.Frontend{{
		Addr: frontend.Addr(), Port: frontend.Port(), ClusterIP: true, Pool: program.ClusterPool, HoldsRefusals: g.Refusing && protocol == 6,
	}}}
	for i := range 10 {
		port.Cluster = append(port.Cluster, contents.Endpoint{Addr: netip.AddrPortFrom(measure.Server(i), measure.ServerPort)})
	}
	lab.Must(b, e.Set(&port))
	_, err = e.Apply()
	lab.Must(b, err)
	return path
}

// inTurn measures rates without the rules for endpoints that do not answer, with those that observe, and with those for refusals
// as well. It does a little with each in turn, so that other work on the machine disturbs all alike.
func inTurn(b *testing.B, what string, newLane func(contents.Globals) (do func() (rate float64, err error))) {
	b.Helper()
	lanes := []func() (float64, error){
		newLane(contents.Globals{}), newLane(contents.Globals{Unanswered: true}), newLane(contents.Globals{Unanswered: true, Refusing: true}),
	}
	seen := make([][]float64, len(lanes))
	for i := 0; b.Loop(); i++ {
		for j := range lanes {
			at := (i + j) % len(lanes)
			rate, err := lanes[at]()
			lab.Must(b, err)
			seen[at] = append(seen[at], rate)
		}
	}
	b.ReportMetric(measure.MedianRatio(seen[1], seen[0]), "observe/off")
	b.ReportMetric(measure.MedianRatio(seen[2], seen[0]), "refusals/off")
	b.ReportMetric(measure.MedianOf(seen[0]), "off-"+what+"/s")
}

// BenchmarkConnections compares connections per second.
func BenchmarkConnections(b *testing.B) {
	inTurn(b, "connections", func(g contents.Globals) func() (float64, error) {
		path := newPath(b, g, unix.IPPROTO_TCP)
		return func() (float64, error) {
			c, err := path.Dial(frontend, 10)
			return c.Rate(), err
		}
	})
}

// BenchmarkPackets does the same with packets of connections that exist: messages there and back.
func BenchmarkPackets(b *testing.B) {
	inTurn(b, "exchanges", func(g contents.Globals) func() (float64, error) {
		x := newExchange(b, newPath(b, g, unix.IPPROTO_UDP))
		_, err := x.run(10)
		lab.Must(b, err)
		return func() (float64, error) { return x.run(100) }
	})
}

// exchange is a UDP flow over a path, between two sockets of one thread.
type exchange struct {
	client, server net.PacketConn
	buf            [64]byte
}

func newExchange(b *testing.B, path *measure.Path) *exchange {
	b.Helper()
	x := &exchange{}
	lab.Must(b,
		path.Client.Do(func() (err error) { x.client, err = net.ListenPacket("udp4", ":0"); return err }),
		path.Servers.Do(func() (err error) {
			x.server, err = net.ListenPacket("udp4", fmt.Sprint(":", measure.ServerPort))
			return err
		}),
	)
	b.Cleanup(func() { x.client.Close(); x.server.Close() })
	return x
}

func space(b *testing.B, name string) *lab.Namespace {
	b.Helper()
	n, err := lab.NewNamespace(name)
	lab.Must(b, err)
	b.Cleanup(func() { n.Close() })
	return n
}

// run sends messages there and back, and returns how many a second.
func (x *exchange) run(n int) (float64, error) {
	began := time.Now()
	to := net.UDPAddrFromAddrPort(frontend)
	for range n {
		if _, err := x.client.WriteTo(x.buf[:], to); err != nil {
			return 0, err
		}
		_, from, err := x.server.ReadFrom(x.buf[:])
		if err != nil {
			return 0, err
		}
		if _, err := x.server.WriteTo(x.buf[:], from); err != nil {
			return 0, err
		}
		if _, _, err := x.client.ReadFrom(x.buf[:]); err != nil {
			return 0, err
		}
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
