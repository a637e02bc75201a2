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
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
)

// family is an IP family with the addresses of the demo.
type family struct {
	name                         string // as in EndpointSlices
	clusterIP, node, client, pod netip.Addr
	podRange                     string
}

// families returns the families of the kernel.
func families() []family {
	address := netip.MustParseAddr
	list := []family{{
		name: "IPv4", clusterIP: address("10.96.0.10"), node: address("192.168.7.1"), client: address("192.168.7.2"),
		pod: address("10.0.1.0"), podRange: "10.0.0.0/16",
	}, {
		name: "IPv6", clusterIP: address("fd00:96::10"), node: address("fd00:7::1"), client: address("fd00:7::2"),
		pod: address("fd00:10::"), podRange: "fd00:10::/64",
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
	if n.node, err = newHost("the node", 0); err != nil {
		return nil, err
	}
	n.node.addresses = n.addresses(func(f *family) netip.Addr { return f.node })
	n.client, err = n.add("client", n.addresses(func(f *family) netip.Addr { return f.client }))
	return n, err
}

// addPod adds a pod to the node.
func (n *network) addPod(name string) (*host, error) {
	return n.add(name, n.addresses(func(f *family) netip.Addr {
		f.pod = f.pod.Next()
		return f.pod
	}))
}

// addresses returns an address of each family.
func (n *network) addresses(of func(*family) netip.Addr) (list []netip.Addr) {
	for i := range n.families {
		list = append(list, of(&n.families[i]))
	}
	return list
}

// add makes a host and connects it to the node by a pair of links: eth0, and one with the name of the host. Its default route
// leads to the node, and that of the node to the client.
func (n *network) add(name string, addresses []netip.Addr) (*host, error) {
	h, err := newHost(name, unix.CLONE_NEWNET)
	if err != nil {
		return nil, err
	}
	h.addresses = addresses
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(h.namespace))}
	err = errors.Join(n.node.links.LinkAdd(veth), n.node.setUp(name, h, name == "client"), h.setUp("eth0", n.node, true))
	if err != nil {
		return nil, fmt.Errorf("connect %s to the node: %w", name, err)
	}
	return h, nil
}

// settings are sysctls whose values a namespace may inherit from the machine. Duplicate address detection would make
// addresses unusable for a second or two.
const settings = "ipv4/conf/all/rp_filter=0 ipv4/conf/default/rp_filter=0 ipv4/ip_forward=1 ipv6/conf/all/disable_ipv6=0 " +
	"ipv6/conf/default/disable_ipv6=0 ipv6/conf/all/forwarding=1 ipv6/conf/default/accept_dad=0 ipv6/conf/default/dad_transmits=0"

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
		for setting := range strings.FieldsSeq(settings) {
			name, value, _ := strings.Cut(setting, "=")
			err := os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0)
			if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without IPv6
				return err
			}
		}
		return h.setUp("lo", &host{}, false)
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

// setUp sets a link up, with addresses that work at once, those of the peer at its other end, and default routes to these.
func (h *host) setUp(link string, peer *host, byDefault bool) error {
	l, err := h.links.LinkByName(link)
	if err != nil {
		return err
	}
	err = h.links.LinkSetUp(l)
	for i, other := range peer.addresses {
		own := netlink.NewIPNet(h.addresses[i].AsSlice())
		address := &netlink.Addr{IPNet: own, Peer: netlink.NewIPNet(other.AsSlice()), Flags: unix.IFA_F_NODAD}
		err = errors.Join(err, h.links.AddrAdd(l, address))
		if byDefault {
			route := &netlink.Route{LinkIndex: l.Attrs().Index, Gw: other.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
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
	return err
}
