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
)

// family is an IP family with the addresses of the demo. The addresses of the pods follow the one before the first.
type family struct {
	name                                   string // as in EndpointSlices
	clusterIP, node, client, gateway, pods netip.Addr
	podRange, everything                   netip.Prefix
}

// families returns the families of the kernel. The file is absent on a kernel that was started with ipv6.disable=1.
func families() []family {
	address, prefix := netip.MustParseAddr, netip.MustParsePrefix
	list := []family{{
		name: "IPv4", clusterIP: address("10.96.0.10"), node: address("192.168.7.1"), client: address("192.168.7.2"),
		gateway: address("10.0.1.254"), pods: address("10.0.1.0"), podRange: prefix("10.0.0.0/16"), everything: prefix("0.0.0.0/0"),
	}, {
		name: "IPv6", clusterIP: address("fd00:96::10"), node: address("fd00:7::1"), client: address("fd00:7::2"),
		gateway: address("fd00:10::fe"), pods: address("fd00:10::"), podRange: prefix("fd00:10::/64"), everything: prefix("::/0"),
	}}
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
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
	pods         int
}

// newNetwork makes the node and the client. The node is the namespace of this process.
func newNetwork() (n *network, err error) {
	n = &network{families: families()}
	if n.node, err = newHost("the node", 0); err != nil {
		return nil, err
	}
	if n.client, err = n.add("client", func(f *family) (own, gateway netip.Addr) { return f.client, f.node }); err != nil {
		return nil, err
	}
	for i := range n.families {
		// The proxy uses the address of the interface with the default route for node ports.
		f := &n.families[i]
		if err := n.node.route(n.client.name, f, f.client); err != nil {
			return nil, fmt.Errorf("add a default route to the node: %w", err)
		}
	}
	return n, nil
}

// addPod adds a pod to the node.
func (n *network) addPod(name string) (*host, error) {
	n.pods++
	return n.add(name, func(f *family) (own, gateway netip.Addr) {
		own = f.pods
		for range n.pods {
			own = own.Next()
		}
		return own, f.gateway
	})
}

// add makes a host and connects it to the node by a pair of links: eth0, and one with the name of the host.
func (n *network) add(name string, addresses func(*family) (own, gateway netip.Addr)) (*host, error) {
	h, err := newHost(name, unix.CLONE_NEWNET)
	if err != nil {
		return nil, err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(h.namespace))}
	err = errors.Join(n.node.links.LinkAdd(veth), n.node.setUp(name), h.setUp("eth0"))
	for i := range n.families {
		f := &n.families[i]
		own, gateway := addresses(f)
		h.addresses = append(h.addresses, own)
		err = errors.Join(err, n.node.address(name, gateway, own), h.address("eth0", own, gateway), h.route("eth0", f, gateway))
	}
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
		return h.setUp("lo")
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

func (h *host) setUp(link string) error {
	l, err := h.links.LinkByName(link)
	if err != nil {
		return err
	}
	return h.links.LinkSetUp(l)
}

// address adds an address that works at once, and the address at the other end of the link.
func (h *host) address(link string, a, peer netip.Addr) error {
	l, err := h.links.LinkByName(link)
	if err != nil {
		return err
	}
	return h.links.AddrAdd(l, &netlink.Addr{IPNet: single(a), Peer: single(peer), Flags: unix.IFA_F_NODAD})
}

// route adds the default route of a family.
func (h *host) route(link string, f *family, gateway netip.Addr) error {
	l, err := h.links.LinkByName(link)
	if err != nil {
		return err
	}
	return h.links.RouteAdd(&netlink.Route{
		LinkIndex: l.Attrs().Index, Dst: ipNet(f.everything), Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK),
	})
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

func single(a netip.Addr) *net.IPNet { return ipNet(netip.PrefixFrom(a, a.BitLen())) }

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
