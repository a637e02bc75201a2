package netns

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Route is a way to a range of addresses.
type Route struct {
	To      netip.Prefix
	Link    string     // empty: the kernel finds the link of the gateway
	Gateway netip.Addr // zero: the range is on the link itself
	Source  netip.Addr // zero: the kernel chooses
	Metric  int
	Table   int // 0: the main one
}

// AddRoute adds a route. Its gateway need not be in a network of the link, as with the links of pods.
func (n *Namespace) AddRoute(r Route) error {
	route := netlink.Route{Dst: ipNet(r.To), Priority: r.Metric, Table: r.Table, Scope: netlink.SCOPE_LINK}
	if r.Source.IsValid() {
		route.Src = r.Source.AsSlice()
	}
	if r.Gateway.IsValid() {
		route.Gw, route.Scope = r.Gateway.AsSlice(), netlink.SCOPE_UNIVERSE
		if r.Link != "" {
			route.Flags = int(netlink.FLAG_ONLINK)
		}
	}
	return n.addRoute(r.Link, &route)
}

// Own makes every address of a range the namespace's own.
func (n *Namespace) Own(p netip.Prefix) error {
	return n.addRoute("lo", &netlink.Route{
		Dst: ipNet(p), Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: netlink.SCOPE_HOST,
	})
}

func (n *Namespace) addRoute(link string, r *netlink.Route) error {
	err := n.Do(func() error {
		if link != "" {
			l, err := netlink.LinkByName(link)
			if err != nil {
				return fmt.Errorf("find link %s: %w", link, err)
			}
			r.LinkIndex = l.Attrs().Index
		}
		return netlink.RouteAdd(r)
	})
	if err != nil {
		return fmt.Errorf("add a route to %s in network namespace %s: %w", r.Dst, n.Name, err)
	}
	return nil
}

// Divert has the kernel route what arrives on a link by a routing table of its own.
func (n *Namespace) Divert(link string, table int) error {
	return n.Do(func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			rule := netlink.NewRule()
			rule.IifName, rule.Table, rule.Family, rule.Priority = link, table, family, 1000+table
			if err := netlink.RuleAdd(rule); err != nil {
				return fmt.Errorf("route what arrives on link %s of network namespace %s by table %d: %w", link, n.Name, table, err)
			}
		}
		return nil
	})
}
