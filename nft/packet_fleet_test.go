//go:build !nokernel

package nft

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
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

// pusher is a server whose connections wait until a test has them send something.
type pusher struct {
	mu    sync.Mutex
	conns map[string]net.Conn // by the client's address
}

func (p *pusher) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.conns[c.RemoteAddr().String()] = c
		p.mu.Unlock()
	}
}

func (p *pusher) of(client net.Conn) net.Conn {
	for end := time.Now().Add(patient); time.Now().Before(end); runtime.Gosched() {
		p.mu.Lock()
		c := p.conns[client.LocalAddr().String()]
		p.mu.Unlock()
		if c != nil {
			return c
		}
	}
	return nil
}

// passes sends from one end of a connection, and reports whether the other end has it in time.
func passes(from, to net.Conn, within time.Duration) bool {
	if _, err := from.Write([]byte("x")); err != nil {
		return false
	}
	_ = to.SetReadDeadline(time.Now().Add(within))
	_, err := to.Read(make([]byte, 1))
	return err == nil
}

// TestFleet: connections whose flows the node does not know go on, whichever side sends first: they began at another
// balancer with the same rules. A younger Service with the same endpoints changes nothing. An older one has them, until it is gone.
func TestFleet(t *testing.T) {
	t.Parallel() // it mostly waits
	top := newTopology(t)
	pods := pusher{conns: map[string]net.Conn{}}
	const target = 9100
	for _, pod := range podNames[:2] {
		top.At(t, pod).MustDo(t, func() error {
			l, err := net.Listen("tcp", fmt.Sprint(":", target))
			if err == nil {
				go pods.serve(l)
				t.Cleanup(func() { l.Close() })
			}
			return err
		})
	}
	e := top.node.engine(t)
	fleet := func(on bool) {
		g := packetGlobals()
		g.Fleet = on
		e.SetGlobals(g)
	}
	port := func(f program.Family, n byte) contents.Port {
		at := netip.AddrPortFrom(externalIP(f, n), 80)
		return contents.Port{
			Family: f, Name: fmt.Sprintf("ns/svc-%d:p", n), Protocol: tcp, Method: program.SourcePortHash, Answers: at,
			Cluster:   []contents.Endpoint{podEndpoint(f, podNames[0], target), podEndpoint(f, podNames[1], target)},
			Frontends: []contents.Frontend{{Addr: at.Addr(), Port: at.Port(), Pool: program.ClusterPool}},
		}
	}
	for _, f := range program.Families() {
		t.Run(f.String(), func(t *testing.T) {
			check := func(when string, pushed bool) {
				t.Helper()
				mustApply(t, e)
				arrived := 0
				var clients []net.Conn
				for range 20 {
					c, err := top.At(t, lab.Outside).DialContext(t.Context(), "tcp", netip.AddrPortFrom(externalIP(f, 1), 80).String())
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					if pods.of(c) == nil {
						t.Fatalf("%s: no endpoint has the connection of %s", when, c.LocalAddr())
					}
					clients = append(clients, c)
				}
				if err := top.Node.ForgetFlows(); err != nil {
					t.Fatal(err)
				}
				within := patient
				if !pushed {
					within = time.Second // nothing is to arrive
				}
				for i, c := range clients {
					switch {
					case i%2 == 0 && !passes(c, pods.of(c), patient):
						t.Errorf("%s: what a client sends does not arrive", when)
					case i%2 == 1 && (pushed || i == 1) && passes(pods.of(c), c, within):
						arrived++
						if !passes(c, pods.of(c), patient) {
							t.Errorf("%s: the client's answer does not arrive", when)
						}
					}
				}
				if want := map[bool]int{true: 10}[pushed]; arrived != want {
					t.Errorf("%s: of 10 endpoints that send first, clients hear %d; want %d", when, arrived, want)
				}
			}
			fleet(true)
			mustSet(t, e, port(f, 1))
			check("in a fleet", true)
			second := port(f, 2)
			if err := e.Set(&second); err == nil {
				t.Error("nothing says that the endpoints have two frontends")
			}
			check("with a younger Service", true)
			second.Created = -1
			mustSet(t, e, second)
			check("with an older Service", false)
			e.Delete(f, second.Name)
			check("without the older Service", true)
			e.distrust()
			check("after the tables were written anew", true)
			checkUnchanged(t, e)
			fleet(false)
			check("alone", false)
		})
	}
}

// TestFleetLeavesTheNode: somebody names this node as an endpoint. What its programs send in connections that connection tracking
// has forgotten keeps its address.
func TestFleetLeavesTheNode(t *testing.T) {
	top := newTopology(t)
	node := pusher{conns: map[string]net.Conn{}}
	const target = 9200
	top.At(t, lab.Node).MustDo(t, func() error {
		l, err := net.Listen("tcp", fmt.Sprint(":", target))
		if err == nil {
			go node.serve(l)
			t.Cleanup(func() { l.Close() })
		}
		return err
	})
	e := top.node.engine(t)
	g := packetGlobals()
	g.Fleet = true
	e.SetGlobals(g)
	for _, f := range program.Families() {
		at := netip.AddrPortFrom(externalIP(f, 1), 80)
		mustSet(t, e, contents.Port{
			Family: f, Name: "evil/svc:p", Protocol: tcp, Method: program.SourcePortHash, Answers: at,
			Cluster:   []contents.Endpoint{{Addr: netip.AddrPortFrom(nodeAddr(f), target)}},
			Frontends: []contents.Frontend{{Addr: at.Addr(), Port: at.Port(), Pool: program.ClusterPool}},
		})
	}
	mustApply(t, e)
	for _, f := range program.Families() {
		c, err := top.At(t, lab.Outside).DialContext(t.Context(), "tcp", netip.AddrPortFrom(nodeAddr(f), target).String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		server := node.of(c)
		if server == nil {
			t.Fatalf("%s: no connection", f)
		}
		if err := top.Node.ForgetFlows(); err != nil {
			t.Fatal(err)
		}
		if !passes(server, c, patient) {
			t.Errorf("%s: what the node sends does not arrive", f)
		}
	}
}
