package ipvsctl

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// addresses makes frontend addresses local to the host. Each has a route in table local.
type addresses struct {
	handle   *netlink.Handle
	loopback int
}

func openAddresses(ns int) (*addresses, error) {
	h, err := netlink.NewHandleAt(wire.Namespace(ns), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open routing socket: %w", err)
	}
	lo, err := h.LinkByName("lo")
	if err != nil {
		h.Close()
		return nil, fmt.Errorf("find link lo: %w", err)
	}
	return &addresses{handle: h, loopback: lo.Attrs().Index}, nil
}

func (a *addresses) close() { a.handle.Close() }

func (a *addresses) route(addr netip.Addr) *netlink.Route {
	return &netlink.Route{
		Dst:       &net.IPNet{IP: addr.AsSlice(), Mask: net.CIDRMask(addr.BitLen(), addr.BitLen())},
		LinkIndex: a.loopback,
		Table:     unix.RT_TABLE_LOCAL,
		Type:      unix.RTN_LOCAL,
		Scope:     netlink.SCOPE_HOST,
		Protocol:  routeProtocol,
		Priority:  routePriority,
	}
}

// AddAddress makes an address local. It is no error when the route exists.
func (a *addresses) AddAddress(addr netip.Addr) error {
	route := a.route(addr)
	route.Src = a.source(addr)
	err := a.handle.RouteAdd(route)
	if errors.Is(err, syscall.EINVAL) && route.Src != nil { // this host does not have the source any more, or not yet
		route.Src = nil
		err = a.handle.RouteAdd(route)
	}
	if errors.Is(err, syscall.EEXIST) {
		return nil
	}
	return err
}

// source is from where this host itself goes to an IPv6 address that is not local yet; nil: the kernel decides. To a local address, it
// would go from any of its own, even one that the source ranges of a Service lack. (In IPv4, it goes from that very address, which
// the plan adds to ranges that have the node.) When the host loses the source, the kernel takes it off the route.
func (a *addresses) source(addr netip.Addr) net.IP {
	if addr.Is4() {
		return nil
	}
	routes, err := a.handle.RouteGet(addr.AsSlice())
	if err != nil || len(routes) == 0 || routes[0].Type == unix.RTN_LOCAL {
		return nil
	}
	return routes[0].Src
}

// DeleteAddress undoes AddAddress. It is no error when the route does not exist.
func (a *addresses) DeleteAddress(addr netip.Addr) error {
	err := a.handle.RouteDel(a.route(addr))
	if errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// ListAddresses returns the addresses that have a route of this package, in no particular order.
func (a *addresses) ListAddresses() ([]netip.Addr, error) {
	var list []netip.Addr
	filter := &netlink.Route{Table: unix.RT_TABLE_LOCAL, Protocol: routeProtocol, LinkIndex: a.loopback}
	mask := netlink.RT_FILTER_TABLE | netlink.RT_FILTER_PROTOCOL | netlink.RT_FILTER_OIF
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := a.handle.RouteListFiltered(family, filter, mask)
		if err != nil {
			return nil, fmt.Errorf("list local routes: %w", err)
		}
		for i := range routes {
			if addr, ok := netip.AddrFromSlice(routes[i].Dst.IP); ok {
				list = append(list, addr.Unmap())
			}
		}
	}
	return list, nil
}

// isLocal reports whether this host receives packets to an address, because of a route of this package or for any other
// reason.
func (a *addresses) IsLocal(addr netip.Addr) (bool, error) {
	routes, err := a.handle.RouteGet(addr.AsSlice())
	if errors.Is(err, syscall.ENETUNREACH) || errors.Is(err, syscall.EHOSTUNREACH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up the route to %s: %w", addr, err)
	}
	return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, nil
}
