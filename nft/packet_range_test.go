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
	"github.com/verdict-proxy/verdict/nft/program"
)

// The pods answer at 8080 to 8083. The ranges in these tests end before the last of these ports.
const rangeFirst, rangeLast = firstPodPort, firstPodPort + 2

// rangeEndpoints are the named pods, at any port.
func rangeEndpoints(f program.Family, pods ...string) []contents.Endpoint {
	out := podEndpoints(f, pods...)
	for i := range out {
		out[i].Addr = netip.AddrPortFrom(out[i].Addr.Addr(), 0)
	}
	return out
}

// rangePorts are service ports with ranges, in order: all kinds of frontends, source ranges, and no endpoints.
func rangePorts(f program.Family, protocol uint8) []contents.Port {
	all, local := rangeEndpoints(f, podNames[:]...), rangeEndpoints(f, podNames[:2]...)
	at := func(ip netip.Addr, fe contents.Frontend) contents.Frontend {
		fe.Addr, fe.Port, fe.EndPort = ip, rangeFirst, rangeLast
		return fe
	}
	always := contents.Frontend{Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways}
	name := func(s string) string { return "range/" + s + ":" + protocolName(protocol) }
	port := func(s string, pods []contents.Endpoint, list ...contents.Frontend) contents.Port {
		return contents.Port{Family: f, Name: name(s), Protocol: protocol, Cluster: pods, Frontends: list}
	}
	own := port("local", all, at(externalIP(f, 72), contents.Frontend{Pool: program.BySource, Masquerade: contents.MasqueradeNode}))
	own.Local = local
	firewalled := port("firewalled", all, at(externalIP(f, 73), contents.Frontend{Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways, Firewalled: true}))
	firewalled.Sources = []netip.Prefix{netip.PrefixFrom(clientAddr(f), clientAddr(f).BitLen())}
	return []contents.Port{
		port("all", all, at(serviceIP(f, 71), contents.Frontend{ClusterIP: true, Pool: program.ClusterPool}), at(externalIP(f, 71), always)),
		own, firewalled,
		port("empty", nil, at(serviceIP(f, 74), contents.Frontend{ClusterIP: true, Refusal: program.Reject}), at(externalIP(f, 74), contents.Frontend{Refusal: program.Drop})),
	}
}

// askRange asks one port of a range until every wanted pod has answered at that port.
func (top *topology) askRange(t *testing.T, f program.Family, protocol uint8, p probe) {
	t.Helper()
	missing := slices.Clone(p.pods)
	for try := 0; len(missing) > 0; try++ {
		if try == 200 {
			t.Fatalf("%v never answered", missing)
		}
		a := top.At(t, p.from).Once(t, question(protocol, p.to))
		if !slices.Contains(p.pods, a.Pod) || a.Port != p.to.Port() || a.Source != sourceSeen(f, p, a.Pod) {
			t.Fatalf("%s: %s answered at port %d, and saw %s; wanted one of %v, the same port, and %s", p.to, a.Pod, a.Port, a.Source, p.pods, sourceSeen(f, p, a.Pod))
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == a.Pod })
	}
}

// TestRangePackets sends packets to each port of ranges, to the port beside them, and to ranges without endpoints.
func TestRangePackets(t *testing.T) {
	t.Parallel() // it mostly waits
	forEachKind(t, func(t *testing.T, top *topology, e *Engine, f program.Family, protocol uint8) {
		e.SetGlobals(packetGlobals())
		mustSet(t, e, rangePorts(f, protocol)...)
		mustApply(t, e)
		all, local := podNames[:], podNames[:2]
		for port := uint16(rangeFirst); port <= rangeLast; port++ {
			at := func(ip netip.Addr) netip.AddrPort { return netip.AddrPortFrom(ip, port) }
			for _, p := range []probe{
				{"", lab.Outside, at(serviceIP(f, 71)), all, true}, {"", "a", at(serviceIP(f, 71)), all, false},
				{"", lab.Outside, at(externalIP(f, 71)), all, true}, {"", lab.Node, at(externalIP(f, 71)), all, true},
				{"", lab.Outside, at(externalIP(f, 72)), local, false}, {"", lab.Node, at(externalIP(f, 72)), all, true},
				{"", lab.Outside, at(externalIP(f, 73)), all, true},
			} {
				top.askRange(t, f, protocol, p)
			}
			top.expectOutcome(t, lab.Outside, question(protocol, at(serviceIP(f, 74))), lab.Refused)
			for to, from := range map[netip.Addr]netip.Addr{externalIP(f, 74): {}, externalIP(f, 73): oneOfManyClients(f, 1)} {
				q := question(protocol, at(to))
				q.From, q.Patience = from, impatient
				top.expectOutcome(t, lab.Outside, q, lab.Dropped)
			}
		}
		top.expectOutcome(t, lab.Outside, question(protocol, netip.AddrPortFrom(serviceIP(f, 71), rangeLast+1)), lab.Refused)
		top.expectOutcome(t, lab.Outside, question(protocol, netip.AddrPortFrom(serviceIP(f, 71), rangeFirst-1)), lab.Refused)
	})
}

// TestRangeAffinity: a client stays with its endpoint at all ports of a range, by affinity and by a hash of its address,
// and the walk predicts both.
func TestRangeAffinity(t *testing.T) {
	forEachKind(t, func(t *testing.T, top *topology, e *Engine, f program.Family, protocol uint8) {
		for i, p := range []contents.Port{{Affinity: time.Hour}, {Affinity: time.Hour, Method: program.SourceHash}, {Method: program.SourceHash}} {
			p.Family, p.Name, p.Protocol, p.Cluster = f, fmt.Sprintf("range/%d:x", i), protocol, rangeEndpoints(f, podNames[:]...)
			p.Frontends = []contents.Frontend{{Addr: serviceIP(f, byte(80+i)), Port: rangeFirst, EndPort: rangeLast, ClusterIP: true, Pool: program.ClusterPool}}
			mustSet(t, e, p)
		}
		mustApply(t, e)
		tables := top.node.tables(t)
		for i := range byte(3) {
			for client := range 4 {
				q := question(protocol, netip.AddrPortFrom(serviceIP(f, 80+i), rangeFirst))
				q.From = oneOfManyClients(f, client)
				first := top.At(t, lab.Outside).Once(t, q)
				for _, port := range []uint16{rangeFirst + 1, rangeLast} {
					q.To = netip.AddrPortFrom(q.To.Addr(), port)
					walk, err := tables.Walk("prerouting", "nat", inspect.Packet{Src: q.From, Dst: q.To.Addr(), Protocol: protocol, DstPort: port, Interface: "outside"})
					if err != nil || walk.Pick == nil || walk.Pick.Chosen != netip.AddrPortFrom(podIP(f, first.Pod), port) {
						t.Fatalf("%s: walk %+v, %v; wanted %s at the port", q, walk.Pick, err, first.Pod)
					}
					if a := top.At(t, lab.Outside).Once(t, q); a.Pod != first.Pod || a.Port != port {
						t.Errorf("%s: %s answered at port %d; wanted %s at the same port", q, a.Pod, a.Port, first.Pod)
					}
				}
			}
		}
	})
}

// TestLargeRange: a range of 10,000 ports is one element, and its ends belong to it.
func TestLargeRange(t *testing.T) {
	top := newTopology(t)
	const f, last = program.IPv4, 8083
	e := top.node.engine(t)
	fe := contents.Frontend{Addr: externalIP(f, 75), Port: firstPodPort, EndPort: firstPodPort + 9999, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways}
	mustSet(t, e, contents.Port{Family: f, Name: "range/large:tcp", Protocol: tcp, Cluster: rangeEndpoints(f, "a"), Frontends: []contents.Frontend{fe}})
	r := mustApply(t, e)
	if n := strings.Count(r.Text(), "add element ip verdict range-services"); n != 1 {
		t.Errorf("%d elements, want 1:\n%s", n, r.Text())
	}
	top.askRange(t, f, tcp, probe{"", lab.Outside, netip.AddrPortFrom(fe.Addr, last), []string{"a"}, true})
	top.expectOutcome(t, lab.Outside, question(tcp, netip.AddrPortFrom(fe.Addr, fe.EndPort)), lab.Refused) // by the pod
}
