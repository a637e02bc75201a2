package nft

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

// TestPackets sends real packets through every kind of frontend, from outside, from the node itself and from a pod, in
// every protocol and both families.
func TestPackets(t *testing.T) {
	top := newTopology(t)
	e := top.node.engine(t)
	e.SetGlobals(packetGlobals())
	for _, f := range Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			mustSet(t, e, packetPorts(f, protocol)...)
		}
	}
	mustApply(t, e)
	for _, f := range Families() {
		for _, protocol := range []uint8{tcp, udp, sctp} {
			for _, p := range servedProbes(f) {
				t.Run(fmt.Sprintf("%s/%s/%s/from %s", f, protocolName(protocol), p.name, p.from), func(t *testing.T) {
					top.checkServed(t, f, protocol, p)
				})
			}
		}
	}
}

func packetGlobals() Globals {
	return Globals{
		PodCIDRs:          prefixes("10.0.0.0/16", "fd00:10::/32"),
		ServiceCIDRs:      prefixes("10.96.0.0/16", "fd00:96::/112"),
		NodePortAddresses: []netip.Addr{nodeAddr(IPv4), nodeAddr(IPv6)},
	}
}

// serviceIP and externalIP number the addresses of services.
func serviceIP(f Family, n byte) netip.Addr {
	if f == IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x96, 15: n})
	}
	return netip.AddrFrom4([4]byte{10, 96, 0, n})
}

func externalIP(f Family, n byte) netip.Addr {
	if f == IPv6 {
		return netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 15: n})
	}
	return netip.AddrFrom4([4]byte{192, 0, 2, n})
}

// podEndpoints are the named pods, all at the first port.
func podEndpoints(f Family, names ...string) []Endpoint {
	var out []Endpoint
	for i, name := range podNames {
		if slices.Contains(names, name) {
			out = append(out, Endpoint{Addr: netip.AddrPortFrom(podIP(f, i), firstPodPort), Local: podNetwork(i) == 1})
		}
	}
	return out
}

// packetPorts are the service ports of one protocol.
func packetPorts(f Family, protocol uint8) []Port {
	all, local := podEndpoints(f, podNames[:]...), podEndpoints(f, "pod-a", "pod-b")
	lb := Frontend{Addr: externalIP(f, 4), Port: 80, Pool: ClusterPool, Masquerade: MasqueradeAlways, Firewalled: true,
		Sources: []netip.Prefix{netip.PrefixFrom(clientAddr(f), clientAddr(f).BitLen())}}
	lbOpen := lb
	lbOpen.Addr, lbOpen.Sources = externalIP(f, 5), []netip.Prefix{everything(f)}
	name := func(s string) string { return "test/" + s + ":" + protocolName(protocol) }
	return []Port{
		{Family: f, Name: name("cluster"), Protocol: protocol, Cluster: all, Frontends: []Frontend{
			{Addr: serviceIP(f, 1), Port: 80, ClusterIP: true, Pool: ClusterPool},
			{Addr: externalIP(f, 1), Port: 80, Pool: ClusterPool, Masquerade: MasqueradeAlways},
			{Port: 30001, Pool: ClusterPool, Masquerade: MasqueradeAlways},
		}},
		{Family: f, Name: name("local"), Protocol: protocol, Cluster: all, Local: local, Frontends: []Frontend{
			{Addr: serviceIP(f, 2), Port: 80, ClusterIP: true, Pool: ClusterPool},
			{Addr: externalIP(f, 2), Port: 80, Pool: BySource, Masquerade: MasqueradeNode},
			{Port: 30002, Pool: BySource, Masquerade: MasqueradeNode},
		}},
		{Family: f, Name: name("internal-local"), Protocol: protocol, Cluster: all, Local: local, Frontends: []Frontend{
			{Addr: serviceIP(f, 3), Port: 80, ClusterIP: true, Pool: LocalPool},
		}},
		{Family: f, Name: name("ranges"), Protocol: protocol, Cluster: all, Frontends: []Frontend{lb, lbOpen}},
		{Family: f, Name: name("empty"), Protocol: protocol, Frontends: []Frontend{
			{Addr: serviceIP(f, 6), Port: 80, ClusterIP: true, Refusal: Reject},
			{Addr: externalIP(f, 6), Port: 80, Refusal: Reject},
			{Port: 30006, Refusal: Reject},
		}},
		{Family: f, Name: name("elsewhere"), Protocol: protocol, Cluster: podEndpoints(f, "pod-c"), Frontends: []Frontend{
			{Addr: serviceIP(f, 7), Port: 80, ClusterIP: true, Refusal: Drop},
			{Addr: externalIP(f, 7), Port: 80, Pool: BySource, Refusal: Drop, Masquerade: MasqueradeNode},
			{Port: 30007, Pool: BySource, Refusal: Drop, Masquerade: MasqueradeNode},
		}},
	}
}

// probe says where connections from somewhere to a frontend are to land.
type probe struct {
	name, from string
	to         netip.AddrPort
	pods       []string
	// masqueraded: the pod sees an address of the node. A pod that reaches itself always does.
	masqueraded bool
}

func servedProbes(f Family) []probe {
	all, local, remote := podNames[:], podNames[:2], podNames[2:]
	cluster := func(ip netip.Addr) netip.AddrPort { return netip.AddrPortFrom(ip, 80) }
	node := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(nodeAddr(f), port) }
	var out []probe
	add := func(name string, to netip.AddrPort, from string, pods []string, masqueraded bool) {
		out = append(out, probe{name, from, to, pods, masqueraded})
	}
	for _, from := range []string{"client", "node", "pod-a"} {
		pod := from != "client" && from != "node"
		add("cluster IP", cluster(serviceIP(f, 1)), from, all, !pod)
		add("external IP", cluster(externalIP(f, 1)), from, all, true)
		add("node port", node(30001), from, all, true)
		add("cluster IP, internal policy Local", cluster(serviceIP(f, 3)), from, local, !pod)
		add("load balancer, open to all", cluster(externalIP(f, 5)), from, all, true)

		throughLocal, throughEmpty := all, remote
		if from == "client" {
			throughLocal, throughEmpty = local, nil
		}
		add("cluster IP of a service with policy Local", cluster(serviceIP(f, 2)), from, all, !pod)
		add("external IP, policy Local", cluster(externalIP(f, 2)), from, throughLocal, from == "node")
		add("node port, policy Local", node(30002), from, throughLocal, from == "node")
		if throughEmpty != nil {
			add("external IP, policy Local, none local", cluster(externalIP(f, 7)), from, throughEmpty, from == "node")
			add("node port, policy Local, none local", node(30007), from, throughEmpty, from == "node")
		}
	}
	add("load balancer with ranges", cluster(externalIP(f, 4)), "client", all, true)
	return out
}

func (top *topology) namespace(name string) *namespace {
	switch name {
	case "client":
		return top.client
	case "node":
		return top.node
	}
	return top.pods[name]
}

// checkServed connects until every pod has been seen, and at most so often that missing one by chance is out of the
// question.
func (top *topology) checkServed(t *testing.T, f Family, protocol uint8, p probe) {
	t.Helper()
	missing := slices.Clone(p.pods)
	for try := 0; len(missing) > 0; try++ {
		if try == 200 {
			t.Fatalf("%v never answered", missing)
		}
		a, err := top.namespace(p.from).ask(protocol, netip.Addr{}, p.to, patient)
		if err != nil {
			t.Fatalf("%s: %v", p.to, err)
		}
		if !slices.Contains(p.pods, a.pod) || a.port != firstPodPort {
			t.Fatalf("%s landed on %s, port %d; wanted one of %v, port %d", p.to, a.pod, a.port, p.pods, firstPodPort)
		}
		if want := sourceSeen(f, p, a.pod); a.source != want {
			t.Fatalf("%s saw the source %s; wanted %s", a.pod, a.source, want)
		}
		missing = slices.DeleteFunc(missing, func(name string) bool { return name == a.pod })
	}
}

// sourceSeen is the source that a pod is to see: that of the connection, or the node's on the link to the pod.
func sourceSeen(f Family, p probe, pod string) netip.Addr {
	own := map[string]netip.Addr{"client": clientAddr(f), "node": nodeAddr(f)}
	for i, name := range podNames {
		own[name] = podIP(f, i)
		if name == pod && (p.masqueraded || p.from == pod) {
			return podAddr(f, podNetwork(i), 254)
		}
	}
	return own[p.from]
}
