//go:build !nokernel

package nft

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// clients is how many clients the tests of affinity have: enough that none of what they check happens by chance.
const clients = 24

// answerer is an endpoint that answered a client.
type answerer struct {
	pod  string
	port uint16
}

// seats has the endpoint of each client.
type seats map[int]answerer

// askAll connects once from every client.
func (top *topology) askAll(t *testing.T, f program.Family, protocol uint8, to netip.AddrPort) seats {
	t.Helper()
	return top.askMany(t, f, protocol, to, 0, clients)
}

// askMany connects once from each of n clients.
func (top *topology) askMany(t *testing.T, f program.Family, protocol uint8, to netip.AddrPort, first, n int) seats {
	t.Helper()
	got := seats{}
	q := question(protocol, to)
	top.At(t, lab.Outside).MustDo(t, func() error {
		for i := first; i < first+n; i++ {
			q.From = oneOfManyClients(f, i)
			r := lab.Ask(q)
			if r.Outcome != lab.Answered {
				return fmt.Errorf("client %d, %s: %s", i, q, r)
			}
			got[i] = answerer{r.Answer.Pod, r.Answer.Port}
		}
		return nil
	})
	return got
}

// moved counts the clients that have another endpoint than before.
func (s seats) moved(now seats) int {
	n := 0
	for i, a := range s {
		if now[i] != a {
			n++
		}
	}
	return n
}

func (s seats) expectSame(t *testing.T, now seats, after string) {
	t.Helper()
	if n := s.moved(now); n > 0 {
		t.Fatalf("%s, %d of %d clients moved to another endpoint:\nbefore %v\nafter  %v", after, n, len(s), s, now)
	}
}

// stickyPort has four endpoints in each pod.
func stickyPort(f program.Family, protocol uint8, timeout time.Duration) contents.Port {
	p := contents.Port{Family: f, Name: "test/sticky:" + protocolName(protocol), Protocol: protocol, Affinity: timeout}
	for _, pod := range podNames {
		for n := range uint16(4) {
			at := podEndpoint(f, pod, firstPodPort+n)
			p.Cluster = append(p.Cluster, at)
			if at.Local {
				p.Local = append(p.Local, at)
			}
		}
	}
	p.Frontends = []contents.Frontend{
		{Addr: serviceIP(f, 1), Port: 80, ClusterIP: true, Pool: program.ClusterPool},
		{Addr: externalIP(f, 1), Port: 80, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways},
		{Port: 30001, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways},
		{Addr: externalIP(f, 2), Port: 80, Pool: program.BySource, Masquerade: contents.MasqueradeNode},
	}
	return p
}

// places are the addresses of the sticky port's frontends, in their order.
func places(f program.Family) [4]netip.AddrPort {
	at := netip.AddrPortFrom
	return [4]netip.AddrPort{at(serviceIP(f, 1), 80), at(externalIP(f, 1), 80), at(nodeAddr(f), 30001), at(externalIP(f, 2), 80)}
}

// forEachKind runs a test for all protocols and families, each on a node without tables.
func forEachKind(t *testing.T, do func(t *testing.T, top *topology, e *Engine, f program.Family, protocol uint8)) {
	top := newTopology(t)
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			t.Run(f.String()+"/"+protocolName(protocol), func(t *testing.T) {
				top.startOver(t)
				e := top.node.engine(t)
				e.SetGlobals(packetGlobals())
				do(t, top, e, f, protocol)
			})
		}
	}
}

// TestAffinity follows clients through changes of their service port.
func TestAffinity(t *testing.T) {
	forEachKind(t, func(t *testing.T, top *topology, e *Engine, f program.Family, protocol uint8) {
		port, at := stickyPort(f, protocol, time.Hour), places(f)
		set := func() {
			mustSet(t, e, port)
			mustApply(t, e)
		}
		set()
		first := top.askAll(t, f, protocol, at[0])
		first.expectSame(t, top.askAll(t, f, protocol, at[1]), "over the external address")
		first.expectSame(t, top.askAll(t, f, protocol, at[2]), "over the node port")

		removed, others := port.Cluster[5], first.without(port.Cluster[5])
		port.Cluster = append(port.Cluster[:5:5], port.Cluster[6:]...)
		port.Local = append(port.Local[:5:5], port.Local[6:]...)
		set()
		second := top.askAll(t, f, protocol, at[0])
		others.expectSame(t, second, "after another endpoint was removed")
		if left := second.without(removed); len(left) != clients {
			t.Fatalf("%d clients are still at the endpoint that was removed", clients-len(left))
		}
		second.expectSame(t, top.askAll(t, f, protocol, at[2]), "after some had to move")

		port.Cluster[0].Slots, port.Cluster = 3, append(port.Cluster, podEndpoint(f, "d", firstPodPort))
		set()
		second.expectSame(t, top.askAll(t, f, protocol, at[1]), "after an endpoint was added and another's weight changed")
	})
}

// without leaves out the clients at one endpoint.
func (s seats) without(e contents.Endpoint) seats {
	out := maps.Clone(s)
	maps.DeleteFunc(out, func(_ int, at answerer) bool {
		return at.port == e.Addr.Port() && podIP(program.FamilyOf(e.Addr.Addr()), at.pod) == e.Addr.Addr()
	})
	return out
}

// TestAffinityAcrossPools has clients use the cluster pool and, over an external address with policy Local, the local
// one: who sticks to an endpoint on this node keeps it, the others get one that is there, and keep that.
func TestAffinityAcrossPools(t *testing.T) {
	forEachKind(t, func(t *testing.T, top *topology, e *Engine, f program.Family, protocol uint8) {
		port, at := stickyPort(f, protocol, time.Hour), places(f)
		mustSet(t, e, port)
		mustApply(t, e)
		first := top.askAll(t, f, protocol, at[0])
		onNode := maps.Clone(first)
		maps.DeleteFunc(onNode, func(_ int, at answerer) bool { return at.pod == podNames[2] })
		second := top.askAll(t, f, protocol, at[3])
		onNode.expectSame(t, second, "over the address with policy Local")
		for i, a := range second {
			if a.pod == podNames[2] {
				t.Fatalf("client %d was sent to %s, which is not on this node", i, a.pod)
			}
		}
		second.expectSame(t, top.askAll(t, f, protocol, at[3]), "over the same address again")
		second.expectSame(t, top.askAll(t, f, protocol, at[0]), "back over the cluster IP")
	})
}

// TestAffinityTimeout connects often enough to stay, until each client has been there for longer than the timeout, then not
// for longer than the timeout. A client that a slow machine has made come too late may move, and begins again.
func TestAffinityTimeout(t *testing.T) {
	t.Parallel() // it mostly waits
	const timeout = 8 * time.Second
	for _, f := range program.Families() {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			top := newTopology(t)
			e := top.node.engine(t)
			mustSet(t, e, stickyPort(f, udp, timeout))
			mustApply(t, e)
			stays := make([]stay, clients)
			for end := time.Now().Add(2 * time.Minute); slices.ContainsFunc(stays, func(s stay) bool { return s.lasted() <= timeout }); {
				if time.Now().After(end) {
					t.Fatal("this machine is too slow: clients come too late again and again")
				}
				for i := range stays {
					top.visit(t, f, i, &stays[i], timeout)
				}
				time.Sleep(timeout * 3 / 10)
			}
			first := top.askAll(t, f, udp, places(f)[0])
			time.Sleep(timeout + 100*time.Millisecond)
			if first.moved(top.askAll(t, f, udp, places(f)[0])) == 0 {
				t.Fatalf("all %d clients were still stuck after the timeout", clients)
			}
		})
	}
}

// stay is the time for which a client has come again before its affinity ended.
type stay struct {
	at          answerer
	first, last time.Time // before the first and the latest visit
}

func (s stay) lasted() time.Duration { return s.last.Sub(s.first) }

// visit connects from a client, which must get the same endpoint as before if it comes in time.
func (top *topology) visit(t *testing.T, f program.Family, client int, s *stay, timeout time.Duration) {
	t.Helper()
	began := time.Now()
	at := top.askMany(t, f, udp, places(f)[0], client, 1)[client]
	switch {
	case time.Since(s.last) > timeout-100*time.Millisecond: // perhaps too late
		s.at, s.first = at, began
	case at != s.at:
		t.Fatalf("client %d came within %s, and moved from %v to %v", client, time.Since(s.last), s.at, at)
	}
	s.last = began
}

// TestAffinityFull gives the program a map that takes four clients: all others are served without stickiness.
func TestAffinityFull(t *testing.T) {
	forEachKind(t, func(t *testing.T, top *topology, _ *Engine, f program.Family, protocol uint8) {
		serve := func(size uint32) {
			e, err := Open(Options{NetNS: top.node.Fd(), AffinitySize: size})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			e.SetGlobals(packetGlobals())
			mustSet(t, e, stickyPort(f, protocol, time.Hour))
			mustApply(t, e)
		}
		serve(4)
		kept := top.askAll(t, f, protocol, places(f)[0])
		for range 2 {
			kept = kept.stuck(top.askAll(t, f, protocol, places(f)[0]))
		}
		// Four stick; one of the others gets the same of twelve endpoints three times with a chance of 1 in 144.
		if len(kept) < 4 || len(kept) > 12 {
			t.Fatalf("%d of %d clients kept their endpoint; the map has room for 4", len(kept), clients)
		}
		entries := parseListing(t, top.node.nft(t, "list", "map", f.String(), program.TableName, program.Affinity.Name()))
		if n := len(entries[f.String()+" map affinity"].Elements); n != 4 {
			t.Fatalf("%d entries in a map of 4", n)
		}
		serve(0) // another size does not replace the map
		if kept = kept.stuck(top.askAll(t, f, protocol, places(f)[0])); len(kept) < 4 {
			t.Fatalf("only %d clients kept their endpoint when the program started again with another size", len(kept))
		}
	})
}

// TestAffinityFlood has many addresses connect to one service port, several times as many as the map has entries. The
// clients of this and of another service port keep their endpoints, and get one if they are new.
func TestAffinityFlood(t *testing.T) {
	const size, share = 64, 16
	forEachKind(t, func(t *testing.T, top *topology, _ *Engine, f program.Family, protocol uint8) {
		flooded, other := stickyPort(f, protocol, time.Hour), stickyPort(f, protocol, time.Hour)
		other.Name = "test/other:" + protocolName(protocol)
		other.Frontends = []contents.Frontend{{Addr: serviceIP(f, 2), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}
		at, otherAt := places(f)[0], netip.AddrPortFrom(serviceIP(f, 2), 80)
		serve := func() {
			e, err := Open(Options{NetNS: top.node.Fd(), AffinitySize: size, AffinityShare: share})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { e.Close() })
			mustSet(t, e, flooded, other)
			mustApply(t, e)
		}
		serve()
		early := top.askAll(t, f, protocol, at)
		top.askMany(t, f, protocol, at, clients, 3*size)

		late := top.askAll(t, f, protocol, otherAt)
		late.expectSame(t, top.askAll(t, f, protocol, otherAt), "after a flood at another service port")
		early.expectSame(t, top.askAll(t, f, protocol, at), "after a flood at the same service port")
		listed := parseListing(t, top.node.nft(t, "list", "map", f.String(), program.TableName, program.Affinity.Name()))
		if n := len(listed[f.String()+" map affinity"].Elements); n > 2*share {
			t.Errorf("two service ports have %d entries; each may have %d", n, share)
		}
		serve()
		late.expectSame(t, top.askAll(t, f, protocol, otherAt), "after a restart")
		early.expectSame(t, top.askAll(t, f, protocol, at), "after a restart")
	})
}

// TestAffinityFloodOfManyPorts has many addresses connect to several service ports of a map that is small, and in which a
// service port has the default share. Clients of another service port keep their endpoints.
func TestAffinityFloodOfManyPorts(t *testing.T) {
	const size, share, flooded = 1024, 1024 * program.DefaultAffinityShare / program.DefaultAffinitySize, 6
	top := newTopology(t)
	e, err := Open(Options{NetNS: top.node.Fd(), AffinitySize: size, AffinityShare: share})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	var places []netip.AddrPort
	for i := range flooded + 1 {
		p := stickyPort(program.IPv4, udp, time.Hour)
		p.Name = fmt.Sprintf("test/flooded-%d:udp", i)
		p.Frontends = []contents.Frontend{{Addr: serviceIP(program.IPv4, byte(2+i)), Port: 80, ClusterIP: true, Pool: program.ClusterPool}}
		places = append(places, netip.AddrPortFrom(serviceIP(program.IPv4, byte(2+i)), 80))
		mustSet(t, e, p)
	}
	mustApply(t, e)
	for _, at := range places[:flooded] {
		top.askMany(t, program.IPv4, udp, at, clients, size)
	}
	first := top.askAll(t, program.IPv4, udp, places[flooded])
	first.expectSame(t, top.askAll(t, program.IPv4, udp, places[flooded]), "after a flood at other service ports")
}

// stuck are the clients that have the same endpoint as before.
func (s seats) stuck(now seats) seats {
	out := maps.Clone(s)
	maps.DeleteFunc(out, func(i int, at answerer) bool { return now[i] != at })
	return out
}

// TestAffinityOff turns affinity off and on again.
func TestAffinityOff(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	for _, timeout := range []time.Duration{time.Hour, 0, time.Minute} {
		mustSet(t, e, stickyPort(program.IPv4, tcp, timeout))
		mustApply(t, e)
		first := top.askAll(t, program.IPv4, tcp, places(program.IPv4)[0])
		moved := first.moved(top.askAll(t, program.IPv4, tcp, places(program.IPv4)[0]))
		if (moved == 0) != (timeout > 0) {
			t.Fatalf("timeout %v: %d of %d clients moved", timeout, moved, clients)
		}
	}
	listed := top.node.nft(t, "list", "map", "ip", program.TableName, program.Affinity.Name())
	if strings.Count(listed, "timeout 1m ") != clients {
		t.Fatalf("not all entries have the last timeout:\n%s", listed)
	}
}
