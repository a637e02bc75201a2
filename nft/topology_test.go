package nft

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// topology is a node with two pods, a pod on another node, and a client outside:
//
//	client 192.168.7.2 ---- 192.168.7.1 node 10.0.1.254 ---- 10.0.1.1 pod-a
//	      + 10.200.0.0/16                    10.0.1.254 ---- 10.0.1.2 pod-b
//	                                         10.0.2.254 ---- 10.0.2.1 pod-c (stands for another node's)
//
// In IPv6: fd00:7::/64, fd00:10:0:1::/64, fd00:10:0:2::/64, fd00:200::/64. Pods reach everything through the node,
// and the node everything else through the client. Every pod answers with its name and the source it saw.
type topology struct {
	node, client *namespace
	pods         map[string]*namespace
}

var podNames = [...]string{"pod-a", "pod-b", "pod-c"}

// podAddr is the address of a pod; last 254 is the node's on the same link.
func podAddr(f Family, network, last byte) netip.Addr {
	if f == IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x10, 7: network, 15: last})
	}
	return netip.AddrFrom4([4]byte{10, 0, network, last})
}

func nodeAddr(f Family) netip.Addr   { return outsideAddr(f, 1) }
func clientAddr(f Family) netip.Addr { return outsideAddr(f, 2) }

func outsideAddr(f Family, last byte) netip.Addr {
	if f == IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 3: 0x07, 15: last})
	}
	return netip.AddrFrom4([4]byte{192, 168, 7, last})
}

// oneOfManyClients is an address out of a range that is all the client's.
func oneOfManyClients(f Family, n int) netip.Addr {
	if f == IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 2: 0x02, 14: byte(n >> 8), 15: byte(n)})
	}
	return netip.AddrFrom4([4]byte{10, 200, byte(n >> 8), byte(n)})
}

func manyClients(f Family) netip.Prefix {
	bits := 16
	if f == IPv6 {
		bits = 64
	}
	p, _ := oneOfManyClients(f, 0).Prefix(bits)
	return p
}

func newTopology(t testing.TB) *topology {
	t.Helper()
	top := &topology{node: newNamespace(t), client: newNamespace(t), pods: map[string]*namespace{}}
	top.node.sysctls(t, "ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1")
	top.client.sysctls(t, "ipv6/ip_nonlocal_bind=1") // for oneOfManyClients
	connect(t, top.node, "outside", top.client)
	for _, f := range Families() {
		top.node.address(t, "outside", nodeAddr(f), 24)
		top.client.address(t, "eth0", clientAddr(f), 24)
		top.node.route(t, "outside", everything(f), clientAddr(f))
		top.client.route(t, "eth0", everything(f), nodeAddr(f))
		top.client.Do(t, func() error { return localRoute(manyClients(f)) })
	}
	for i, name := range podNames {
		pod := newNamespace(t)
		top.pods[name] = pod
		link := "veth-" + name
		connect(t, top.node, link, pod)
		for _, f := range Families() {
			own, gateway := podIP(f, i), podAddr(f, podNetwork(i), 254)
			top.node.address(t, link, gateway, f.addrLen()*8)
			top.node.route(t, link, netip.PrefixFrom(own, own.BitLen()), netip.Addr{})
			pod.address(t, "eth0", own, f.addrLen()*8)
			pod.route(t, "eth0", netip.PrefixFrom(gateway, gateway.BitLen()), netip.Addr{})
			pod.route(t, "eth0", everything(f), gateway)
		}
		pod.serve(t, name)
	}
	return top
}

// podNetwork is 1 for the pods on the node, 2 for the other.
func podNetwork(i int) byte { return byte(1 + i/2) }

func podIP(f Family, i int) netip.Addr { return podAddr(f, podNetwork(i), byte(1+i%2)) }

func everything(f Family) netip.Prefix {
	if f == IPv6 {
		return netip.MustParsePrefix("::/0")
	}
	return netip.MustParsePrefix("0.0.0.0/0")
}

// connect joins two namespaces by a pair of interfaces; the one at the far end is eth0.
func connect(t testing.TB, near *namespace, name string, far *namespace) {
	t.Helper()
	for _, n := range []*namespace{near, far} {
		// Addresses can be used at once, and no setting of the machine's gets in the way.
		n.sysctls(t, "ipv6/conf/default/accept_dad=0", "ipv6/conf/default/dad_transmits=0", "ipv6/conf/all/disable_ipv6=0",
			"ipv6/conf/default/disable_ipv6=0", "ipv4/conf/all/rp_filter=0", "ipv4/conf/default/rp_filter=0")
	}
	near.Do(t, func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(far.Fd())}
		if err := netlink.LinkAdd(veth); err != nil {
			return fmt.Errorf("add link %s: %w", name, err)
		}
		return netns.LinkUp(name)
	})
	far.Do(t, func() error { return netns.LinkUp("eth0") })
}

// sysctls writes settings below net, such as ipv4/ip_forward=1.
func (n *namespace) sysctls(t testing.TB, settings ...string) {
	t.Helper()
	n.Do(t, func() error {
		for _, s := range settings {
			var path, value string
			for i := range s {
				if s[i] == '=' {
					path, value = s[:i], s[i+1:]
				}
			}
			if err := os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value), 0); err != nil {
				return err
			}
		}
		return nil
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

func (n *namespace) address(t testing.TB, link string, a netip.Addr, bits int) {
	t.Helper()
	if a.Is6() && bits < 64 {
		bits = 64
	}
	n.Do(t, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		err = netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(a, bits)), Flags: unix.IFA_F_NODAD})
		if err != nil {
			return fmt.Errorf("add %s to %s: %w", a, link, err)
		}
		return nil
	})
}

// route sends a range to a link, through a gateway if there is one.
func (n *namespace) route(t testing.TB, link string, to netip.Prefix, gateway netip.Addr) {
	t.Helper()
	n.Do(t, func() error {
		l, err := netlink.LinkByName(link)
		if err != nil {
			return err
		}
		r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(to)}
		if gateway.IsValid() {
			r.Gw = gateway.AsSlice()
		} else {
			r.Scope = netlink.SCOPE_LINK
		}
		if err := netlink.RouteAdd(r); err != nil {
			return fmt.Errorf("add route to %s over %s: %w", to, link, err)
		}
		return nil
	})
}

// localRoute makes all addresses of a range the namespace's own.
func localRoute(p netip.Prefix) error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	r := &netlink.Route{LinkIndex: lo.Attrs().Index, Dst: ipNet(p), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST}
	if err := netlink.RouteAdd(r); err != nil {
		return fmt.Errorf("add local route to %s: %w", p, err)
	}
	return nil
}
