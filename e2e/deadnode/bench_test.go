//go:build e2e

package deadnode

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// lane is a path whose node has the program.
type lane struct {
	path   *measure.Path
	dialer *measure.Dialer
}

var frontend = netip.MustParseAddrPort("10.96.0.10:80")

func newLane(b *testing.B, g contents.Globals) *lane {
	b.Helper()
	path, err := measure.NewPath(fmt.Sprintf("unanswered-%t-refusing-%t", g.Unanswered, g.Refusing))
	lab.Must(b, err)
	b.Cleanup(func() { path.Close() })
	e, err := nft.Open(nft.Options{NetNS: path.Node.Fd()})
	lab.Must(b, err)
	b.Cleanup(func() { e.Close() })
	g.PodCIDRs = []netip.Prefix{netip.MustParsePrefix(measure.ClientRange)}
	e.SetGlobals(g)
	port := contents.Port{Family: program.IPv4, Name: "default/web:http", Protocol: 6, Frontends: []contents.Frontend{
		{Addr: frontend.Addr(), Port: frontend.Port(), ClusterIP: true, Pool: program.ClusterPool, HoldsRefusals: g.Refusing},
	}}
	for i := range 10 {
		port.Cluster = append(port.Cluster, contents.Endpoint{Addr: netip.AddrPortFrom(measure.Server(i), measure.ServerPort)})
	}
	lab.Must(b, e.Set(&port))
	if _, err := e.Apply(); err != nil {
		b.Fatal(err)
	}
	l := &lane{path: path}
	if l.dialer, err = path.NewDialer(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { l.dialer.Close() })
	return l
}

// rates are those of each round.
type rates []float64

// ratio is the median of the ratios of all rounds.
func (r rates) ratio(base rates) float64 {
	list := make([]float64, len(r))
	for i := range r {
		list[i] = r[i] / base[i]
	}
	return measure.MedianOf(list)
}

// BenchmarkConnections compares connections per second with the rules for endpoints that do not answer, and without. A
// few connections at a time go over each path in turn, so that other work on the machine disturbs all alike.
func BenchmarkConnections(b *testing.B) {
	lanes := []*lane{newLane(b, contents.Globals{}), newLane(b, contents.Globals{Unanswered: true}),
		newLane(b, contents.Globals{Unanswered: true, Refusing: true})}
	seen := make([]rates, len(lanes))
	for i := 0; b.Loop(); i++ {
		for j := range lanes {
			at := (i + j) % len(lanes)
			c, err := lanes[at].dialer.Dial(frontend, 10)
			lab.Must(b, err)
			seen[at] = append(seen[at], c.Rate())
		}
	}
	b.ReportMetric(seen[1].ratio(seen[0]), "observe/off")
	b.ReportMetric(seen[2].ratio(seen[0]), "refusals/off")
	b.ReportMetric(measure.MedianOf(seen[0]), "off-connections/s")
}

// BenchmarkPackets does the same with packets of connections that exist: messages there and back.
func BenchmarkPackets(b *testing.B) {
	lanes := []*exchange{newExchange(b, contents.Globals{}), newExchange(b, contents.Globals{Unanswered: true}),
		newExchange(b, contents.Globals{Unanswered: true, Refusing: true})}
	seen := make([]rates, len(lanes))
	for i := 0; b.Loop(); i++ {
		for j := range lanes {
			at := (i + j) % len(lanes)
			rate, err := lanes[at].run(100)
			lab.Must(b, err)
			seen[at] = append(seen[at], rate)
		}
	}
	b.ReportMetric(seen[1].ratio(seen[0]), "observe/off")
	b.ReportMetric(seen[2].ratio(seen[0]), "refusals/off")
	b.ReportMetric(measure.MedianOf(seen[0]), "off-exchanges/s")
}

// exchange is a UDP flow over a path, between two sockets of one thread.
type exchange struct {
	client, server net.PacketConn
	buf            [64]byte
}

// newExchange makes a path of its own: the node translates the flow, and the server answers.
func newExchange(b *testing.B, g contents.Globals) *exchange {
	b.Helper()
	x := &exchange{}
	near, node, far := space(b, "near"), space(b, "node"), space(b, "far")
	err := errors.Join(
		measure.Link(near, node, "to-near", "10.250.0.2/24", "10.250.0.1/24"),
		measure.Link(far, node, "to-far", "10.251.0.2/24", "10.251.0.1/24"),
		node.Sysctl("net.ipv4.ip_forward=1"), measure.Route(near, "0.0.0.0/0", "10.250.0.1"), measure.Route(far, "0.0.0.0/0", "10.251.0.1"),
		near.Do(func() (err error) { x.client, err = net.ListenPacket("udp4", "10.250.0.2:0"); return err }),
		far.Do(func() (err error) { x.server, err = net.ListenPacket("udp4", "10.251.0.2:8080"); return err }),
	)
	lab.Must(b, err)
	b.Cleanup(func() { x.client.Close(); x.server.Close() })
	e, err := nft.Open(nft.Options{NetNS: node.Fd()})
	lab.Must(b, err)
	b.Cleanup(func() { e.Close() })
	g.PodCIDRs = []netip.Prefix{netip.MustParsePrefix(measure.ClientRange)}
	e.SetGlobals(g)
	err = e.Set(&contents.Port{Family: program.IPv4, Name: "default/web:udp", Protocol: 17,
		Cluster:   []contents.Endpoint{{Addr: netip.MustParseAddrPort("10.251.0.2:8080")}},
		Frontends: []contents.Frontend{{Addr: frontend.Addr(), Port: frontend.Port(), ClusterIP: true, Pool: program.ClusterPool}}})
	lab.Must(b, err)
	if _, err := e.Apply(); err != nil {
		b.Fatal(err)
	}
	if _, err := x.run(10); err != nil {
		b.Fatal(err)
	}
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
