package netns

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Connect joins two namespaces by a pair of links and sets both up. Both ends may be in one namespace.
func Connect(a *Namespace, linkA string, b *Namespace, linkB string) error {
	err := a.Do(func() error {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: linkA})
		pair.PeerName, pair.PeerNamespace = linkB, netlink.NsFd(b.Fd())
		return netlink.LinkAdd(pair)
	})
	if err != nil {
		return fmt.Errorf("connect %s (link %s) and %s (link %s): %w", a.Name, linkA, b.Name, linkB, err)
	}
	return errors.Join(a.SetUp(linkA), b.SetUp(linkB))
}

// Quiet makes a namespace independent of the machine's defaults. Its links can use their addresses at once (no
// duplicate address detection, which takes a second), take packets from any source, and neither send nor follow
// redirects. It applies to links that are made afterwards.
func (n *Namespace) Quiet() error {
	return n.Sysctl(
		"net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.dad_transmits=0", "net.ipv6.conf.default.accept_ra=0",
		"net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.default.disable_ipv6=0",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
		"net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.default.send_redirects=0",
		"net.ipv4.conf.all.accept_redirects=0", "net.ipv4.conf.default.accept_redirects=0",
		"net.ipv6.conf.all.accept_redirects=0", "net.ipv6.conf.default.accept_redirects=0",
	)
}

// withLink calls fn with a link, on a thread inside the namespace.
func (n *Namespace) withLink(name, what string, fn func(netlink.Link) error) error {
	err := n.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return fn(link)
	})
	if err != nil {
		return fmt.Errorf("%s: link %s of network namespace %s: %w", what, name, n.Name, err)
	}
	return nil
}

// SetUp sets a link up.
func (n *Namespace) SetUp(link string) error { return n.withLink(link, "set up", netlink.LinkSetUp) }

// SetDown sets a link down.
func (n *Namespace) SetDown(link string) error {
	return n.withLink(link, "set down", netlink.LinkSetDown)
}

// DeleteLink deletes a link, and with it the other end of its pair.
func (n *Namespace) DeleteLink(link string) error {
	return n.withLink(link, "delete", netlink.LinkDel)
}

// Bridge makes a bridge with ports and sets it up.
func (n *Namespace) Bridge(name string, ports ...string) error {
	err := n.Do(func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}) })
	if err != nil {
		return fmt.Errorf("make bridge %s in network namespace %s: %w", name, n.Name, err)
	}
	errs := []error{n.SetUp(name)}
	for _, port := range ports {
		errs = append(errs, n.AddPort(name, port))
	}
	return errors.Join(errs...)
}

// AddPort makes a link a port of a bridge.
func (n *Namespace) AddPort(bridge, port string) error {
	return n.withLink(port, "add to bridge "+bridge, func(link netlink.Link) error {
		master, err := netlink.LinkByName(bridge)
		if err != nil {
			return err
		}
		return netlink.LinkSetMaster(link, master)
	})
}

// Hairpin lets a port of a bridge send a packet back where it came from. A pod that reaches itself through a Service
// needs that; network plugins call it hairpin mode.
func (n *Namespace) Hairpin(port string) error {
	return n.withLink(port, "set hairpin mode", func(link netlink.Link) error {
		return netlink.LinkSetHairpin(link, true)
	})
}

// AddAddress gives a link an address that works at once. The functions may change it before.
func (n *Namespace) AddAddress(link string, a netip.Prefix, change ...func(*netlink.Addr)) error {
	addr := &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}
	for _, c := range change {
		c(addr)
	}
	return n.withLink(link, "add address "+a.String(), func(l netlink.Link) error { return netlink.AddrAdd(l, addr) })
}

// RemoveAddress takes an address from a link.
func (n *Namespace) RemoveAddress(link string, a netip.Prefix) error {
	return n.withLink(link, "remove address "+a.String(), func(l netlink.Link) error {
		return netlink.AddrDel(l, &netlink.Addr{IPNet: ipNet(a)})
	})
}

// Addresses lists the addresses of a namespace, each with the link that has it.
func (n *Namespace) Addresses() (list []netip.Prefix, links []string, err error) {
	err = n.Do(func() error {
		all, err := netlink.LinkList()
		if err != nil {
			return fmt.Errorf("list the links of network namespace %s: %w", n.Name, err)
		}
		for _, l := range all {
			found, err := netlink.AddrList(l, netlink.FAMILY_ALL)
			if err != nil {
				return fmt.Errorf("list the addresses of link %s in network namespace %s: %w", l.Attrs().Name, n.Name, err)
			}
			for _, a := range found {
				ip, _ := netip.AddrFromSlice(a.IP)
				bits, _ := a.Mask.Size()
				list, links = append(list, netip.PrefixFrom(ip.Unmap(), bits)), append(links, l.Attrs().Name)
			}
		}
		return nil
	})
	return list, links, err
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// TUN makes a link whose packets the caller reads and writes. It goes with the file.
func (n *Namespace) TUN(name string) (file *os.File, err error) {
	err = n.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return errors.Join(err, unix.Close(fd))
		}
		file = os.NewFile(uintptr(fd), name)
		return nil
	})
	return file, err
}
