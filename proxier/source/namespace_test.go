package source

import (
	"net/netip"
	"os"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/e2e/netns"
)

// TestMain enters a user namespace if the user is not root, so that the tests can create network namespaces.
func TestMain(m *testing.M) { os.Exit(netns.Main(m)) }

// namespace is a network namespace with methods for these tests.
type namespace struct {
	t *testing.T
	*netns.Namespace
}

// newNamespace creates a namespace without any address, not even on the loopback interface.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	return &namespace{t, netns.Bare(t)}
}

func (n *namespace) do(what string, fn func() error) {
	n.t.Helper()
	if err := n.Run(fn); err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

// link adds an interface that is up. It is one end of a pair, because not every kernel has dummy interfaces.
func (n *namespace) link(name string) {
	n.t.Helper()
	n.do("add interface "+name, func() error {
		return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "-peer"})
	})
	n.up(name)
	n.up(name + "-peer")
}

// up brings an interface up.
func (n *namespace) up(name string) {
	n.t.Helper()
	n.do("bring up "+name, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

func (n *namespace) deleteLink(name string) {
	n.t.Helper()
	n.do("delete "+name, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkDel(link)
	})
}

// address adds an address that is usable at once.
func (n *namespace) address(name, cidr string, change ...func(*netlink.Addr)) {
	n.t.Helper()
	n.do("add address "+cidr, func() error { return changeAddress(netlink.AddrAdd, name, cidr, change...) })
}

func (n *namespace) deleteAddress(name, cidr string) {
	n.t.Helper()
	n.do("delete address "+cidr, func() error { return changeAddress(netlink.AddrDel, name, cidr) })
}

func changeAddress(call func(netlink.Link, *netlink.Addr) error, name, cidr string, change ...func(*netlink.Addr)) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	if addr.IP.To4() == nil {
		addr.Flags = unix.IFA_F_NODAD
	}
	for _, c := range change {
		c(addr)
	}
	return call(link, addr)
}

// defaultRoute adds a default route over an interface.
func (n *namespace) defaultRoute(family int, name string, metric int, src string) {
	n.t.Helper()
	n.do("add default route over "+name, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		dst := netip.MustParsePrefix("0.0.0.0/0")
		if family == netlink.FAMILY_V6 {
			dst = netip.MustParsePrefix("::/0")
		}
		_, network, err := parseNet(dst)
		if err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: network, Priority: metric, Scope: netlink.SCOPE_LINK}
		if src != "" {
			route.Src = netip.MustParseAddr(src).AsSlice()
		}
		return netlink.RouteAdd(route)
	})
}
