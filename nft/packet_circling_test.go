//go:build !nokernel

package nft

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// routed is a node behind a router, with a client and another node behind the router, and a pod on the node.
type routed struct {
	client, other, pod lab.Namespace
	node, router       *namespace
}

// Addresses of routed. The router leads balanced to the node, and shared to the other node.
func routedAddr(f program.Family, name string) netip.Addr {
	n := map[string]byte{"client": 1, "node": 2, "other": 3, "pod": 4, "router": 5, "balanced": 10, "shared": 11, "unused": 12}[name]
	if f == program.IPv6 {
		return netip.AddrFrom16([16]byte{0: 0x20, 1: 1, 2: 0xd, 3: 0xb8, 5: 7, 15: n})
	}
	return netip.AddrFrom4([4]byte{203, 0, 113, n})
}

func newRouted(t *testing.T) *routed {
	t.Helper()
	all := map[string]*netns.Namespace{}
	for _, name := range []string{"client", "router", "node", "other", "pod"} {
		all[name] = netns.New(t)
		lab.Must(t, all[name].Quiet(), all[name].Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.icmp_ratemask=0", "net.ipv6.icmp.ratelimit=0"))
	}
	for _, edge := range [][2]string{{"router", "client"}, {"router", "node"}, {"router", "other"}, {"node", "pod"}} {
		lab.Must(t, netns.Connect(all[edge[0]], edge[1], all[edge[1]], "up"))
	}
	for _, f := range program.Families() {
		own := func(name string) netip.Prefix {
			return netip.PrefixFrom(routedAddr(f, name), routedAddr(f, name).BitLen())
		}
		for _, name := range []string{"client", "node", "other"} {
			lab.Must(t, all["router"].AddAddress(name, own("router")), all["router"].AddRoute(netns.Route{To: own(name), Link: name}),
				all[name].AddAddress("up", own(name)), all[name].AddRoute(netns.Route{To: everyone(f), Link: "up", Gateway: routedAddr(f, "router")}))
		}
		for to, via := range map[string]string{"pod": "node", "balanced": "node", "unused": "node", "shared": "other"} {
			lab.Must(t, all["router"].AddRoute(netns.Route{To: own(to), Link: via, Gateway: routedAddr(f, via)}))
		}
		lab.Must(t, all["pod"].AddAddress("up", own("pod")), all["node"].AddAddress("pod", own("node")), all["node"].AddRoute(netns.Route{To: own("pod"), Link: "pod"}), all["other"].AddAddress("lo", own("shared")),
			all["pod"].AddRoute(netns.Route{To: everyone(f), Link: "up", Gateway: routedAddr(f, "node")}))
		lab.Must(t, all["router"].Load(counters(f)))
	}
	return &routed{
		client: lab.Namespace{Namespace: all["client"]}, other: lab.Namespace{Namespace: all["other"]}, pod: lab.Namespace{Namespace: all["pod"]},
		router: &namespace{all["router"]}, node: &namespace{all["node"]},
	}
}

// counters count what the router sends to the addresses of Services, what of that comes back from the node, and what the node answers.
func counters(f program.Family) string {
	services := routedAddr(f, "balanced").String() + ", " + routedAddr(f, "unused").String() + ", " + routedAddr(f, "other").String()
	return fmt.Sprintf(`table %[1]s count {
		counter sent { }
		counter back { }
		counter answered { }
		chain out { type filter hook postrouting priority 300; oifname "node" %[1]s daddr { %[2]s } counter name sent; }
		chain in {
			type filter hook prerouting priority -300
			iifname "node" %[1]s daddr { %[2]s } counter name back
			iifname "node" %[1]s daddr %[3]s counter name answered
		}
	}`, f, services, routedAddr(f, "client"))
}

// counted returns what the counters have counted since the last call: sent, back, answered.
func (r *routed) counted(t *testing.T, f program.Family) (n [3]int) {
	t.Helper()
	text := strings.Fields(r.router.nft(t, "reset", "counters", "table", f.String(), "count"))
	for i, name := range []string{"sent", "back", "answered"} {
		n[i], _ = strconv.Atoi(text[slices.Index(text, name)+3]) // counter NAME { packets N
	}
	return n
}

// circling are two Services with the load balancer IPs of routed, for each protocol: one has an endpoint, and with policy Local one
// has none here. The addresses of all nodes are load balancer IPs, too, as with k3s.
func circling(f program.Family) (ports []contents.Port) {
	at := func(name string, port uint16, refusal program.Refusal) contents.Frontend {
		return contents.Frontend{Addr: routedAddr(f, name), Port: port, Pool: program.ClusterPool, Refusal: refusal, Masquerade: contents.MasqueradeAlways}
	}
	for _, protocol := range []uint8{tcp, udp, sctp} {
		pod := []contents.Endpoint{{Addr: netip.AddrPortFrom(routedAddr(f, "pod"), 8080), Local: true}}
		ports = append(ports,
			contents.Port{Family: f, Name: "test/lb:" + protocolName(protocol), Protocol: protocol, Cluster: pod, Frontends: []contents.Frontend{
				at("balanced", 80, program.NoRefusal), at("node", 80, program.NoRefusal), at("other", 80, program.NoRefusal), at("shared", 80, program.NoRefusal),
			}},
			contents.Port{Family: f, Name: "test/local:" + protocolName(protocol), Protocol: protocol, Frontends: []contents.Frontend{at("balanced", 82, program.Drop)}})
	}
	return ports
}

// ping sends an echo request.
func ping(t *testing.T, from lab.Namespace, to netip.Addr) {
	t.Helper()
	lab.Must(t, from.Do(func() error {
		network, echo := "ip4:icmp", []byte{8, 0, 0xf7, 0xff, 0, 0, 0, 0}
		if to.Is6() {
			network, echo = "ip6:ipv6-icmp", []byte{128, 0, 0, 0, 0, 0, 0, 0}
		}
		c, err := net.Dial(network, to.String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(echo)
		return err
	}))
}

// TestCircling: a packet to a load balancer IP that no port takes is refused if it would leave by the device by which it came:
// one packet in, one refusal out. Without the rule, it circles between node and router until its TTL ends.
func TestCircling(t *testing.T) {
	for name, refuses := range map[string]bool{"refused": true, "circles": false} {
		t.Run(name, func(t *testing.T) {
			r := newRouted(t)
			e, err := Open(Options{NetNS: r.node.Fd(), Circles: !refuses})
			lab.Must(t, err)
			t.Cleanup(func() { e.Close() })
			for _, f := range program.Families() {
				mustSet(t, e, circling(f)...)
			}
			mustApply(t, e)
			for _, f := range program.Families() {
				check := func(what string) {
					t.Helper()
					var n [3]int
					lab.Eventually(t, what, func() error { // the refusal is on its way
						for i, more := range r.counted(t, f) {
							n[i] += more
						}
						if n[2] == 0 && n[1] <= 20 {
							return fmt.Errorf("sent, back, answered: %v", n)
						}
						return nil
					})
					if circled := n[1] > 20; refuses && n != [3]int{1, 0, 1} || circled == refuses {
						t.Errorf("%s: sent, back, answered: %v", what, n)
					}
				}
				for _, protocol := range []uint8{tcp, udp, sctp} {
					q := question(protocol, netip.AddrPortFrom(routedAddr(f, "balanced"), 81))
					if !refuses {
						q.Patience = impatient
					}
					if got := r.client.Ask(q); (got.Outcome == lab.Refused) != refuses {
						t.Errorf("%s: %s", q, got)
					}
					check(q.String())
				}
				ping(t, r.client, routedAddr(f, "balanced"))
				check("ping " + f.String())
			}
		})
	}
}

// serveTCP answers in a namespace, at a port of all its addresses.
func serveTCP(t *testing.T, n lab.Namespace, port uint16) {
	t.Helper()
	lab.Must(t, n.Do(func() error {
		l, err := net.Listen("tcp", netip.AddrPortFrom(netip.IPv6Unspecified(), port).String())
		if err == nil {
			t.Cleanup(func() { l.Close() })
			go lab.Accept(l, "other", port)
		}
		return err
	}))
}

// serveUDP answers at the addresses of the other node.
func serveUDP(t *testing.T, n lab.Namespace, port uint16) {
	t.Helper()
	lab.Must(t, n.Do(func() error {
		for _, f := range program.Families() { // from the address that was asked
			for _, name := range []string{"other", "shared"} {
				u, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(routedAddr(f, name), port)))
				if err != nil {
					return err
				}
				t.Cleanup(func() { u.Close() })
				go lab.Reply(u, "other", port)
			}
		}
		return nil
	}))
}

// TestAddressesOfOthers: load balancer IPs can belong to others: all nodes' addresses are such (k3s), one is a control plane's virtual
// address on another node, and another cluster has one as well. Packets of this node and its pods to other ports of them pass.
func TestAddressesOfOthers(t *testing.T) {
	r := newRouted(t)
	serveTCP(t, r.other, 6443)
	serveUDP(t, r.other, 6443)
	e := r.node.engine(t)
	for _, f := range program.Families() {
		mustSet(t, e, circling(f)...)
	}
	mustApply(t, e)
	outcome := func(f program.Family, protocol uint8, from, to string, port uint16, want lab.Outcome) {
		t.Helper()
		q := question(protocol, netip.AddrPortFrom(routedAddr(f, to), port))
		if want == lab.Dropped {
			q.Patience = impatient
		}
		place := map[string]lab.Namespace{"client": r.client, "pod": r.pod, "other": r.other, "node": {Namespace: r.node.Namespace}}[from]
		if got := place.Ask(q); got.Outcome != want {
			t.Errorf("%s from %s: %s; wanted: %s", q, from, got, want)
		}
	}
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp} {
			for _, to := range []string{"other", "shared"} {
				outcome(f, protocol, "node", to, 6443, lab.Answered)
				outcome(f, protocol, "pod", to, 6443, lab.Answered)
			}
		}
		outcome(f, tcp, "other", "node", 22, lab.Refused) // by the node's kernel: nobody listens
		for _, protocol := range []uint8{tcp, udp, sctp} {
			outcome(f, protocol, "client", "balanced", 82, lab.Dropped) // policy Local
			outcome(f, protocol, "client", "balanced", 81, lab.Refused)
		}
	}
	// The ranges of these addresses belong to Services alone.
	var globals contents.Globals
	for _, f := range program.Families() {
		for _, name := range []string{"balanced", "unused", "shared", "node"} {
			globals.ServiceCIDRs = append(globals.ServiceCIDRs, netip.PrefixFrom(routedAddr(f, name), routedAddr(f, name).BitLen()))
		}
	}
	e.SetGlobals(globals)
	mustApply(t, e)
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			for _, from := range []string{"node", "pod"} {
				outcome(f, protocol, from, "balanced", 81, lab.Refused)
				outcome(f, protocol, from, "shared", 6443, lab.Refused)
				outcome(f, protocol, from, "unused", 80, lab.Dropped)
			}
			outcome(f, protocol, "client", "unused", 80, lab.Dropped)
			outcome(f, protocol, "client", "balanced", 82, lab.Dropped)
			outcome(f, protocol, "client", "balanced", 81, lab.Refused)
		}
		outcome(f, tcp, "pod", "other", 6443, lab.Answered)
	}
}

// TestBridgedAddress: a bridge that calls iptables carries the packets of a virtual machine to another one, whose address is a load
// balancer IP. They are no circle.
func TestBridgedAddress(t *testing.T) {
	r := newRouted(t)
	machines := []lab.Namespace{{Namespace: netns.New(t)}, {Namespace: netns.New(t)}}
	addr := func(f program.Family, i int) netip.Addr { return externalIP(f, 200+byte(i)) }
	for i, m := range machines {
		lab.Must(t, m.Quiet(), netns.Connect(r.node.Namespace, fmt.Sprint("vm", i), m.Namespace, "up"))
	}
	lab.Must(t, r.node.Bridge("br0", "vm0", "vm1"), r.node.Sysctl("net.bridge.bridge-nf-call-iptables=1", "net.bridge.bridge-nf-call-ip6tables=1"))
	e := r.node.engine(t)
	for _, f := range program.Families() {
		for i, m := range machines {
			lab.Must(t, m.AddAddress("up", netip.PrefixFrom(addr(f, i), addr(f, i).BitLen()-8)),
				r.node.AddRoute(netns.Route{To: netip.PrefixFrom(addr(f, i), addr(f, i).BitLen()), Link: "br0"}))
		}
		port := circling(f)[0]
		port.Frontends = port.Frontends[:1]
		port.Frontends[0].Addr = addr(f, 1)
		mustSet(t, e, port)
	}
	mustApply(t, e)
	serveTCP(t, machines[1], 22)
	for _, f := range program.Families() {
		q := question(tcp, netip.AddrPortFrom(addr(f, 1), 22))
		if got := machines[0].Ask(q); got.Outcome != lab.Answered {
			t.Errorf("%s: %s", q, got)
		}
	}
}
