package lab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func (n *Namespace) linkUp(name string) error {
	return n.withLink(name, netlink.LinkSetUp)
}

func (n *Namespace) withLink(name string, fn func(netlink.Link) error) error {
	return n.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return fmt.Errorf("find link %s in %s: %w", name, n.Name, err)
		}
		if err := fn(link); err != nil {
			return fmt.Errorf("link %s in %s: %w", name, n.Name, err)
		}
		return nil
	})
}

// quiet are settings of every namespace: addresses can be used at once (no duplicate detection), packets may come and go
// as the tests route them, and nobody learns other ways from redirects.
var quiet = []string{
	"net.ipv6.conf.default.accept_dad=0", "net.ipv6.conf.default.dad_transmits=0", "net.ipv6.conf.default.accept_ra=0",
	"net.ipv6.conf.all.disable_ipv6=0", "net.ipv6.conf.default.disable_ipv6=0",
	"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
	"net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.default.send_redirects=0",
	"net.ipv4.conf.all.accept_redirects=0", "net.ipv4.conf.default.accept_redirects=0",
	"net.ipv6.conf.all.accept_redirects=0", "net.ipv6.conf.default.accept_redirects=0",
}

// join connects two namespaces by a pair of links.
func join(a *Namespace, nameA string, b *Namespace, nameB string) error {
	err := a.Do(func() error {
		pair := netlink.NewVeth(netlink.LinkAttrs{Name: nameA})
		pair.PeerName, pair.PeerNamespace = nameB, netlink.NsFd(int(b.file.Fd()))
		return netlink.LinkAdd(pair)
	})
	if err != nil {
		return fmt.Errorf("connect %s (%s) and %s (%s): %w", a.Name, nameA, b.Name, nameB, err)
	}
	return errors.Join(a.linkUp(nameA), b.linkUp(nameB))
}

// bridge makes a bridge and puts links into it.
func (n *Namespace) bridge(name string, ports ...string) error {
	err := n.Do(func() error {
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
			return fmt.Errorf("make bridge %s in %s: %w", name, n.Name, err)
		}
		return nil
	})
	return errors.Join(err, n.linkUp(name), n.plug(name, ports...))
}

// plug puts links into a bridge.
func (n *Namespace) plug(bridge string, ports ...string) error {
	return n.withLink(bridge, func(master netlink.Link) error {
		for _, port := range ports {
			link, err := netlink.LinkByName(port)
			if err != nil {
				return fmt.Errorf("find %s: %w", port, err)
			}
			if err := netlink.LinkSetMaster(link, master); err != nil {
				return fmt.Errorf("add %s: %w", port, err)
			}
		}
		return nil
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// AddAddress gives a link an address.
func (n *Namespace) AddAddress(link string, a netip.Prefix) error {
	return n.withLink(link, func(l netlink.Link) error {
		if err := netlink.AddrAdd(l, &netlink.Addr{IPNet: ipNet(a), Flags: unix.IFA_F_NODAD}); err != nil {
			return fmt.Errorf("add address %s: %w", a, err)
		}
		return nil
	})
}

// RemoveAddress takes an address from a link.
func (n *Namespace) RemoveAddress(link string, a netip.Prefix) error {
	return n.withLink(link, func(l netlink.Link) error {
		if err := netlink.AddrDel(l, &netlink.Addr{IPNet: ipNet(a)}); err != nil {
			return fmt.Errorf("remove address %s: %w", a, err)
		}
		return nil
	})
}

// Addresses lists the addresses of a namespace.
func (n *Namespace) Addresses() (out []netip.Prefix, links []string, err error) {
	err = n.Do(func() error {
		all, err := netlink.LinkList()
		if err != nil {
			return fmt.Errorf("list links of %s: %w", n.Name, err)
		}
		for _, l := range all {
			list, err := netlink.AddrList(l, netlink.FAMILY_ALL)
			if err != nil {
				return fmt.Errorf("list addresses of %s in %s: %w", l.Attrs().Name, n.Name, err)
			}
			for _, a := range list {
				ip, _ := netip.AddrFromSlice(a.IP)
				bits, _ := a.Mask.Size()
				out, links = append(out, netip.PrefixFrom(ip.Unmap(), bits)), append(links, l.Attrs().Name)
			}
		}
		return nil
	})
	return out, links, err
}

// route sends a range over a link, through a gateway if there is one.
func (n *Namespace) route(to netip.Prefix, link string, gateway netip.Addr) error {
	return n.routeIn(unix.RT_TABLE_MAIN, to, link, gateway)
}

// routeFrom also says which own address connections have.
func (n *Namespace) routeFrom(own netip.Addr, to netip.Prefix, link string, gateway netip.Addr) error {
	return n.addRoute(netlink.Route{Dst: ipNet(to), Src: own.AsSlice()}, link, gateway)
}

func (n *Namespace) routeIn(table int, to netip.Prefix, link string, gateway netip.Addr) error {
	return n.addRoute(netlink.Route{Dst: ipNet(to), Table: table}, link, gateway)
}

func (n *Namespace) addRoute(r netlink.Route, link string, gateway netip.Addr) error {
	return n.withLink(link, func(l netlink.Link) error {
		r.LinkIndex, r.Scope = l.Attrs().Index, netlink.SCOPE_LINK
		if gateway.IsValid() {
			r.Gw, r.Scope, r.Flags = gateway.AsSlice(), netlink.SCOPE_UNIVERSE, int(netlink.FLAG_ONLINK)
		}
		if err := netlink.RouteAdd(&r); err != nil {
			return fmt.Errorf("add route to %s: %w", r.Dst, err)
		}
		return nil
	})
}

// own makes all addresses of a range the namespace's own.
func (n *Namespace) own(p netip.Prefix) error {
	return n.withLink("lo", func(l netlink.Link) error {
		r := &netlink.Route{LinkIndex: l.Attrs().Index, Dst: ipNet(p), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST}
		if err := netlink.RouteAdd(r); err != nil {
			return fmt.Errorf("add local route to %s: %w", p, err)
		}
		return nil
	})
}

// divert looks up what arrives on a link in a routing table of its own.
func (n *Namespace) divert(link string, table int) error {
	return n.Do(func() error {
		var errs []error
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			rule := netlink.NewRule()
			rule.IifName, rule.Table, rule.Family, rule.Priority = link, table, family, 1000+table
			errs = append(errs, netlink.RuleAdd(rule))
		}
		if err := errors.Join(errs...); err != nil {
			return fmt.Errorf("divert what arrives on %s in %s: %w", link, n.Name, err)
		}
		return nil
	})
}

// reflect lets a link of a bridge take back what came through it: a pod that reaches itself does. Network plugins call
// it hairpin mode.
func (n *Namespace) reflect(name string) error {
	return n.withLink(name, func(link netlink.Link) error { return netlink.LinkSetHairpin(link, true) })
}
