package demo

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
)

// family is an IP family with the addresses of the demo.
type family struct {
	name                                  string // as in EndpointSlices
	clusterIP, node, client, gateway, pod netip.Addr
	podRange                              string
}

// families returns the families of the kernel.
func families() []family {
	address := netip.MustParseAddr
	list := []family{{
		name: "IPv4", clusterIP: address("10.96.0.10"), node: address("192.168.7.1"), client: address("192.168.7.2"),
		gateway: address("10.0.1.254"), pod: address("10.0.1.0"), podRange: "10.0.0.0/16",
	}, {
		name: "IPv6", clusterIP: address("fd00:96::10"), node: address("fd00:7::1"), client: address("fd00:7::2"),
		gateway: address("fd00:10::fe"), pod: address("fd00:10::"), podRange: "fd00:10::/64",
	}}
	if !preflight.HasIPv6() {
		return list[:1]
	}
	return list
}

// host is the node, a pod or the client. Its network namespace has no name, so it cannot outlive its process.
type host struct {
	name      string
	namespace netns.NsHandle
	links     *netlink.Handle
	addresses []netip.Addr // one for each family
	listeners []net.Listener
}

// network is a node that routes to pods, and a client outside.
type network struct {
	families     []family
	node, client *host
}

// newNetwork makes the node and the client. The node is the namespace of this process. The proxy uses the address of the
// interface with the default route for node ports: it leads to the client.
func newNetwork() (n *network, err error) {
	n = &network{families: families()}
	if n.node, err = newHost("the node", 0); err == nil {
		n.client, err = n.add("client", true, func(f *family) (own, node netip.Addr) { return f.client, f.node })
	}
	return n, err
}

// addPod adds a pod to the node.
func (n *network) addPod(name string) (*host, error) {
	return n.add(name, false, func(f *family) (own, node netip.Addr) {
		f.pod = f.pod.Next()
		return f.pod, f.gateway
	})
}

// add makes a host and connects it to the node by a pair of links: eth0, and one with the name of the host. Its default route
// leads to the node, and that of the node to the host if it is the gateway.
func (n *network) add(name string, gateway bool, addresses func(*family) (own, node netip.Addr)) (*host, error) {
	h, err := newHost(name, unix.CLONE_NEWNET)
	if err != nil {
		return nil, err
	}
	var nodes []netip.Addr
	for i := range n.families {
		own, node := addresses(&n.families[i])
		h.addresses, nodes = append(h.addresses, own), append(nodes, node)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(h.namespace))}
	err = errors.Join(n.node.links.LinkAdd(veth), n.node.setUp(name, nodes, h.addresses, gateway), h.setUp("eth0", h.addresses, nodes, true))
	if err != nil {
		return nil, fmt.Errorf("connect %s to the node: %w", name, err)
	}
	return h, nil
}

// settings returns the sysctls that a namespace may inherit from the machine. Duplicate address detection would make addresses
// unusable for a second or two.
func settings(node bool) map[string]string {
	list := map[string]string{
		"ipv4/conf/all/rp_filter": "0", "ipv4/conf/default/rp_filter": "0",
		"ipv6/conf/all/disable_ipv6": "0", "ipv6/conf/default/disable_ipv6": "0",
		"ipv6/conf/default/accept_dad": "0", "ipv6/conf/default/dad_transmits": "0",
	}
	if node {
		list["ipv4/ip_forward"], list["ipv6/conf/all/forwarding"] = "1", "1"
	}
	return list
}

// newHost makes a host in a new network namespace, or, without the flag, in that of this process.
func newHost(name string, flag int) (*host, error) {
	h := &host{name: name}
	err := onOwnThread(func() (err error) {
		if err = unix.Unshare(flag); err != nil {
			return err
		}
		if h.namespace, err = netns.GetFromPath("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		if h.links, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		for name, value := range settings(flag == 0) {
			err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
				return err
			}
		}
		return h.setUp("lo", nil, nil, false)
	})
	if err != nil {
		return nil, fmt.Errorf("create the network namespace of %s: %w", name, err)
	}
	return h, nil
}

// onOwnThread calls fn on a new thread that ends after the call, because fn changes the namespace of its thread.
func onOwnThread(fn func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked
		done <- fn()
	}()
	return <-done
}

// run calls fn on a thread inside the namespace. Sockets that fn opens stay in that namespace.
func (h *host) run(fn func() error) error {
	return onOwnThread(func() error {
		if err := netns.Set(h.namespace); err != nil {
			return fmt.Errorf("enter the network namespace of %s: %w", h.name, err)
		}
		return fn()
	})
}

// setUp sets a link up, with addresses that work at once, the addresses at its other end, and default routes to these.
func (h *host) setUp(link string, own, peers []netip.Addr, byDefault bool) error {
	l, err := h.links.LinkByName(link)
	if err != nil {
		return err
	}
	err = h.links.LinkSetUp(l)
	for i, peer := range peers {
		address := &netlink.Addr{IPNet: netlink.NewIPNet(own[i].AsSlice()), Peer: netlink.NewIPNet(peer.AsSlice()), Flags: unix.IFA_F_NODAD}
		err = errors.Join(err, h.links.AddrAdd(l, address))
		if byDefault {
			route := &netlink.Route{LinkIndex: l.Attrs().Index, Gw: peer.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
			err = errors.Join(err, h.links.RouteAdd(route))
		}
	}
	return err
}

// disappear removes the addresses of a pod. Packets to them get no answer, and the link of the node stays up.
func (h *host) disappear() error {
	l, err := h.links.LinkByName("eth0")
	if err != nil {
		return err
	}
	list, err := h.links.AddrList(l, netlink.FAMILY_ALL)
	for i := range list {
		err = errors.Join(err, h.links.AddrDel(l, &list[i]))
	}
	if err != nil {
		return fmt.Errorf("remove the addresses of %s: %w", h.name, err)
	}
	return nil
}
