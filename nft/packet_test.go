//go:build !nokernel

package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

// TestPackets sends real packets through every kind of frontend, from outside, from the node itself and from a pod, in
// every protocol and both families.
func TestPackets(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	e.SetGlobals(packetGlobals())
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			mustSet(t, e, packetPorts(f, protocol)...)
		}
	}
	mustApply(t, e)
	for _, f := range program.Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			for _, p := range servedProbes(f) {
				t.Run(fmt.Sprintf("%s/%s/%s/from %s", f, protocolName(protocol), p.name, p.from), func(t *testing.T) {
					top.checkServed(t, f, protocol, p)
				})
			}
		}
	}
}

func packetGlobals() contents.Globals {
	return contents.Globals{
		PodCIDRs:          prefixes("10.0.0.0/16", "fd00:10::/32"),
		NodePodCIDRs:      prefixes("10.0.1.0/24", "fd00:10:0:1::/64"),
		ServiceCIDRs:      prefixes("10.96.0.0/16", "fd00:96::/112"),
		NodePortAddresses: []netip.Addr{nodeAddr(program.IPv4), nodeAddr(program.IPv6)},
	}
}

// serviceIP and externalIP number the addresses of services.
func serviceIP(f program.Family, n byte) netip.Addr {
	if f == program.IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x96, 15: n})
	}
	return netip.AddrFrom4([4]byte{10, 96, 0, n})
}

func externalIP(f program.Family, n byte) netip.Addr {
	if f == program.IPv6 {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: n})
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, n})
}

// packetPorts are the service ports of one protocol.
func packetPorts(f program.Family, protocol uint8) []contents.Port {
	all, local := podEndpoints(f, podNames[:]...), podEndpoints(f, podNames[:2]...)
	lb := contents.Frontend{Addr: externalIP(f, 4), Port: 80, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways, Firewalled: true}
	lbOpen := lb
	lbOpen.Addr = externalIP(f, 5)
	client := []netip.Prefix{netip.PrefixFrom(clientAddr(f), clientAddr(f).BitLen())}
	name := func(s string) string { return "test/" + s + ":" + protocolName(protocol) }
	return []contents.Port{
		{Family: f, Name: name("cluster"), Protocol: protocol, Cluster: all, Frontends: []contents.Frontend{
			{Addr: serviceIP(f, 1), Port: 80, ClusterIP: true, Pool: program.ClusterPool},
			{Addr: externalIP(f, 1), Port: 80, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways},
			{Port: 30001, Pool: program.ClusterPool, Masquerade: contents.MasqueradeAlways},
		}},
		{Family: f, Name: name("local"), Protocol: protocol, Cluster: all, Local: local, Frontends: []contents.Frontend{
			{Addr: serviceIP(f, 2), Port: 80, ClusterIP: true, Pool: program.ClusterPool},
			{Addr: externalIP(f, 2), Port: 80, Pool: program.BySource, Masquerade: contents.MasqueradeNode},
			{Port: 30002, Pool: program.BySource, Masquerade: contents.MasqueradeNode},
		}},
		{Family: f, Name: name("internal-local"), Protocol: protocol, Cluster: all, Local: local, Frontends: []contents.Frontend{
			{Addr: serviceIP(f, 3), Port: 80, ClusterIP: true, Pool: program.LocalPool},
		}},
		{Family: f, Name: name("ranges"), Protocol: protocol, Cluster: all, Frontends: []contents.Frontend{lb}, Sources: client},
		{Family: f, Name: name("open"), Protocol: protocol, Cluster: all, Frontends: []contents.Frontend{lbOpen}, Sources: []netip.Prefix{everyone(f)}},
		{Family: f, Name: name("empty"), Protocol: protocol, Frontends: []contents.Frontend{
			{Addr: serviceIP(f, 6), Port: 80, ClusterIP: true, Refusal: program.Reject},
			{Addr: externalIP(f, 6), Port: 80, Refusal: program.Reject},
			{Port: 30006, Refusal: program.Reject},
		}},
		{Family: f, Name: name("elsewhere"), Protocol: protocol, Cluster: podEndpoints(f, "c"), Frontends: []contents.Frontend{
			{Addr: serviceIP(f, 7), Port: 80, ClusterIP: true, Refusal: program.Drop},
			{Addr: externalIP(f, 7), Port: 80, Pool: program.BySource, Refusal: program.Drop, Masquerade: contents.MasqueradeNode},
			{Port: 30007, Pool: program.BySource, Refusal: program.Drop, Masquerade: contents.MasqueradeNode},
		}},
	}
}

// everyone is the range that covers a family.
func everyone(f program.Family) netip.Prefix { return netip.PrefixFrom(externalIP(f, 0), 0).Masked() }

// probe has the pods in which connections from a place to a frontend must end.
type probe struct {
	name, from string
	to         netip.AddrPort
	pods       []string
	// masqueraded: the pod sees an address of the node. A pod that reaches itself always does.
	masqueraded bool
}

func servedProbes(f program.Family) []probe {
	all, local, remote := podNames[:], podNames[:2], podNames[2:]
	cluster := func(ip netip.Addr) netip.AddrPort { return netip.AddrPortFrom(ip, 80) }
	node := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(nodeAddr(f), port) }
	var out []probe
	add := func(name string, to netip.AddrPort, from string, pods []string, masqueraded bool) {
		out = append(out, probe{name, from, to, pods, masqueraded})
	}
	for _, from := range senders() {
		pod := from != lab.Outside && from != lab.Node
		add("cluster IP", cluster(serviceIP(f, 1)), from, all, !pod)
		add("external IP", cluster(externalIP(f, 1)), from, all, true)
		add("node port", node(30001), from, all, true)
		add("cluster IP, internal policy Local", cluster(serviceIP(f, 3)), from, local, !pod)
		add("load balancer, open to all", cluster(externalIP(f, 5)), from, all, true)

		throughLocal, throughEmpty := all, remote
		if from == lab.Outside {
			throughLocal, throughEmpty = local, nil
		}
		add("cluster IP of a service with policy Local", cluster(serviceIP(f, 2)), from, all, !pod)
		add("external IP, policy Local", cluster(externalIP(f, 2)), from, throughLocal, from == lab.Node)
		add("node port, policy Local", node(30002), from, throughLocal, from == lab.Node)
		if throughEmpty != nil {
			add("external IP, policy Local, none local", cluster(externalIP(f, 7)), from, throughEmpty, from == lab.Node)
			add("node port, policy Local, none local", node(30007), from, throughEmpty, from == lab.Node)
		}
	}
	add("load balancer with ranges", cluster(externalIP(f, 4)), lab.Outside, all, true)
	return out
}

// checkServed connects until every pod has answered. The limit is so high that no pod is missing by chance.
func (top *topology) checkServed(t *testing.T, f program.Family, protocol uint8, p probe) {
	t.Helper()
	missing := slices.Clone(p.pods)
	for try := 0; len(missing) > 0; try++ {
		if try == 200 {
			t.Fatalf("%v never answered", missing)
		}
		a := top.At(t, p.from).Once(t, question(protocol, p.to))
		if !slices.Contains(p.pods, a.Pod) || a.Port != firstPodPort {
			t.Fatalf("%s landed on %s, port %d; wanted one of %v, port %d", p.to, a.Pod, a.Port, p.pods, firstPodPort)
		}
		if want := sourceSeen(f, p, a.Pod); a.Source != want {
			t.Fatalf("%s saw the source %s; wanted %s", a.Pod, a.Source, want)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == a.Pod })
	}
}

// sourceSeen is the source that a pod must see: the client's own address, or the node's address on the link to the pod.
func sourceSeen(f program.Family, p probe, pod string) netip.Addr {
	switch {
	case (p.masqueraded || p.from == pod) && slices.Contains(lab.LocalPods(), pod):
		return named(f, "POD_GATEWAY")
	case p.masqueraded || p.from == pod:
		return named(f, "NODE_INNER")
	case p.from == lab.Outside:
		return clientAddr(f)
	case p.from == lab.Node:
		return nodeAddr(f)
	}
	return podIP(f, p.from)
}
