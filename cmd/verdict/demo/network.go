package demo

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
)

// family is an IP family with the addresses of the demo.
type family struct {
	name       string // as in EndpointSlices
	clusterIP  netip.Addr
	node       netip.Addr // on the link to the client
	client     netip.Addr
	gateway    netip.Addr // of the pods
	pod        netip.Addr // of the first pod; the others follow
	podRange   netip.Prefix
	everything netip.Prefix
	outside    int // prefix length of the link between node and client
}

func ipv4() family {
	return family{
		name: "IPv4", clusterIP: netip.MustParseAddr("10.96.0.10"),
		node: netip.MustParseAddr("192.168.7.1"), client: netip.MustParseAddr("192.168.7.2"), outside: 24,
		gateway: netip.MustParseAddr("10.0.1.254"), pod: netip.MustParseAddr("10.0.1.1"),
		podRange: netip.MustParsePrefix("10.0.0.0/16"), everything: netip.MustParsePrefix("0.0.0.0/0"),
	}
}

func ipv6() family {
	return family{
		name: "IPv6", clusterIP: netip.MustParseAddr("fd00:96::10"),
		node: netip.MustParseAddr("fd00:7::1"), client: netip.MustParseAddr("fd00:7::2"), outside: 64,
		gateway: netip.MustParseAddr("fd00:10::fe"), pod: netip.MustParseAddr("fd00:10::1"),
		podRange: netip.MustParsePrefix("fd00:10::/64"), everything: netip.MustParsePrefix("::/0"),
	}
}

// families returns the families of the kernel. The file is absent on a kernel that was started with ipv6.disable=1.
func families() []family {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return []family{ipv4()}
	}
	return []family{ipv4(), ipv6()}
}

// host is a pod or the client.
type host struct {
	*namespace
	name      string
	addresses []netip.Addr // one for each family
	visited   sync.Map     // the addresses to which somebody has connected
	listeners []net.Listener
}

// network is a node that routes to pods, and a client outside.
type network struct {
	families []family
	node     *namespace
	client   *host
	backends []*host // the pods that answer
	shop     *host   // the pod that connects
}

// The names of pods are part of the names of links, which the kernel limits to 15 bytes.
const shopName, clientName = "shop", "client"

func backendNames() []string { return []string{"pod-a", "pod-b", "pod-c"} }

// newNetwork builds the network. The node is the namespace of this process.
func newNetwork() (*network, error) {
	n := &network{families: families(), node: &namespace{}}
	if err := n.prepareNode(); err != nil {
		return nil, err
	}
	var err error
	if n.client, err = n.addClient(); err != nil {
		return nil, err
	}
	for i, name := range append(backendNames(), shopName) {
		pod, err := n.addPod(i, name)
		if err != nil {
			return nil, err
		}
		n.backends = append(n.backends, pod)
	}
	last := len(n.backends) - 1
	n.shop, n.backends = n.backends[last], n.backends[:last]
	return n, nil
}

func (n *network) prepareNode() error {
	if err := linkUp("lo"); err != nil {
		return err
	}
	if err := n.settle(n.node); err != nil {
		return err
	}
	forward := map[string]string{"IPv4": "ipv4/ip_forward", "IPv6": "ipv6/conf/all/forwarding"}
	for _, f := range n.families {
		if err := n.node.sysctl(forward[f.name], "1"); err != nil {
			return err
		}
	}
	return nil
}

// settle sets the sysctls that a namespace may inherit from the machine.
func (n *network) settle(ns *namespace) error {
	err := errors.Join(ns.sysctl("ipv4/conf/all/rp_filter", "0"), ns.sysctl("ipv4/conf/default/rp_filter", "0"))
	if len(n.families) == 1 {
		return err
	}
	return errors.Join(err,
		ns.sysctl("ipv6/conf/all/disable_ipv6", "0"), ns.sysctl("ipv6/conf/default/disable_ipv6", "0"),
		// Duplicate address detection would make addresses unusable for a second or two.
		ns.sysctl("ipv6/conf/default/accept_dad", "0"), ns.sysctl("ipv6/conf/default/dad_transmits", "0"))
}

// addHost creates a namespace whose link eth0 leads to the node.
func (n *network) addHost(name, link string) (*host, error) {
	ns, err := newNamespace()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(n.settle(ns), pair(n.node, link, ns, "eth0")); err != nil {
		return nil, fmt.Errorf("connect %s to the node: %w", name, err)
	}
	return &host{namespace: ns, name: name}, nil
}

func (n *network) addClient() (*host, error) {
	h, err := n.addHost(clientName, "outside")
	if err != nil {
		return nil, err
	}
	for _, f := range n.families {
		h.addresses = append(h.addresses, f.client)
		err := errors.Join(
			n.node.address("outside", netip.PrefixFrom(f.node, f.outside)),
			h.address("eth0", netip.PrefixFrom(f.client, f.outside)),
			// The proxy uses the address of the interface with the default route for node ports.
			n.node.route("outside", f.everything, f.client),
			h.route("eth0", f.everything, f.node))
		if err != nil {
			return nil, fmt.Errorf("connect the client to the node: %w", err)
		}
	}
	return h, nil
}

func (n *network) addPod(i int, name string) (*host, error) {
	link := "to-" + name
	h, err := n.addHost(name, link)
	if err != nil {
		return nil, err
	}
	for _, f := range n.families {
		own := nth(f.pod, i)
		h.addresses = append(h.addresses, own)
		err := errors.Join(
			n.node.address(link, single(f.gateway)),
			n.node.route(link, single(own), netip.Addr{}),
			h.address("eth0", single(own)),
			h.route("eth0", single(f.gateway), netip.Addr{}),
			h.route("eth0", f.everything, f.gateway))
		if err != nil {
			return nil, fmt.Errorf("connect %s to the node: %w", name, err)
		}
	}
	return h, nil
}

// nth returns the i-th address after a.
func nth(a netip.Addr, i int) netip.Addr {
	for range i {
		a = a.Next()
	}
	return a
}

func single(a netip.Addr) netip.Prefix { return netip.PrefixFrom(a, a.BitLen()) }
