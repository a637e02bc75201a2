package host

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/addresses"
)

// Primary returns the main address of the host in each family, IPv4 first. That is the address of the
// interface with the default route, or the first global address if there is no default route. The loop uses these
// addresses when there is no Node object.
func Primary() ([]netip.Addr, error) {
	var primary []netip.Addr
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		addr, err := primaryAddress(family)
		if err != nil {
			return nil, err
		}
		if addr.IsValid() {
			primary = append(primary, addr)
		}
	}
	return primary, nil
}

// primaryAddress returns the main address of a family, or the zero Addr if there is none.
func primaryAddress(family int) (netip.Addr, error) {
	candidates, err := globalAddresses(family)
	if err != nil {
		return netip.Addr{}, err
	}
	route, err := defaultRoute(family)
	if err != nil {
		return netip.Addr{}, err
	}
	if route != nil {
		if src, ok := netip.AddrFromSlice(route.Src); ok {
			return src.Unmap(), nil
		}
		for _, c := range candidates {
			if c.Link == linkOf(route) {
				return c.Addr, nil
			}
		}
	}
	if len(candidates) > 0 {
		return candidates[0].Addr, nil
	}
	return netip.Addr{}, nil
}

// globalAddresses lists the global addresses of a family by interface, in the order of the kernel. Temporary addresses
// (IPv6 privacy extensions) come last. Addresses that are deprecated, that failed duplicate detection, or that Verdict has added
// for frontends are left out.
func globalAddresses(family int) ([]addresses.Entry, error) {
	list, err := addresses.List(family)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(e addresses.Entry) bool {
		return e.Flags&(unix.IFA_F_DEPRECATED|unix.IFA_F_DADFAILED) != 0 || e.Ours || e.Scope != unix.RT_SCOPE_UNIVERSE || !e.Addr.IsGlobalUnicast()
	})
	slices.SortStableFunc(list, func(a, b addresses.Entry) int {
		// For IPv4 the same bit marks secondary addresses, which come last too.
		return cmp.Or(cmp.Compare(a.Flags&unix.IFA_F_TEMPORARY, b.Flags&unix.IFA_F_TEMPORARY), cmp.Compare(a.Link, b.Link))
	})
	return list, nil
}

// defaultRoute returns the default route that the kernel prefers, or nil if there is none.
func defaultRoute(family int) (*netlink.Route, error) {
	var routes []netlink.Route
	var err error
	for range listAttempts {
		routes, err = netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list the routes of the host: %w", err)
	}
	var best *netlink.Route
	for i := range routes {
		r := &routes[i]
		if isDefault(r) && (best == nil || r.Priority < best.Priority) {
			best = r
		}
	}
	return best, nil
}

// isDefault reports whether a route of the main table is a default route.
func isDefault(r *netlink.Route) bool {
	return r.Table == unix.RT_TABLE_MAIN && r.Type == unix.RTN_UNICAST && (r.Dst == nil || r.Dst.IP.IsUnspecified() && ones(r) == 0)
}

func ones(r *netlink.Route) int {
	n, _ := r.Dst.Mask.Size()
	return n
}

// linkOf returns the interface of a route. Of a route with several paths, it takes the first.
func linkOf(r *netlink.Route) int {
	if r.LinkIndex == 0 && len(r.MultiPath) > 0 {
		return r.MultiPath[0].LinkIndex
	}
	return r.LinkIndex
}
