package source

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// PrimaryAddresses are the addresses with which the host shows itself to others, at most one for each family, IPv4
// first: that of the interface of the default route, or, without one, the first global address. They stand in for the
// Node's addresses when there is no Node object.
func PrimaryAddresses() ([]netip.Addr, error) {
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

// primaryAddress returns the zero Addr when the host has none in a family.
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
			if c.link == linkOf(route) {
				return c.addr, nil
			}
		}
	}
	if len(candidates) > 0 {
		return candidates[0].addr, nil
	}
	return netip.Addr{}, nil
}

// candidate is an address that others can reach the host by.
type candidate struct {
	addr      netip.Addr
	link      int
	temporary bool
}

// globalAddresses lists the global addresses of a family by interface, in the kernel's order, temporary ones (IPv6
// privacy extensions) after those that stay. Addresses that are deprecated or failed their duplicate check are none.
func globalAddresses(family int) ([]candidate, error) {
	list, err := listAddresses(family)
	if err != nil {
		return nil, err
	}
	var good []candidate
	for _, entry := range list {
		addr, ok := addrOf(entry.IPNet)
		usable := entry.Flags&(unix.IFA_F_DEPRECATED|unix.IFA_F_DADFAILED) == 0
		if !ok || !usable || entry.Scope != unix.RT_SCOPE_UNIVERSE || !addr.IsGlobalUnicast() {
			continue
		}
		good = append(good, candidate{
			addr: addr, link: entry.LinkIndex,
			// The same bit means "secondary" for IPv4: no first choice either.
			temporary: entry.Flags&unix.IFA_F_TEMPORARY != 0,
		})
	}
	slices.SortStableFunc(good, func(a, b candidate) int {
		if a.temporary != b.temporary {
			if a.temporary {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.link, b.link)
	})
	return good, nil
}

// defaultRoute returns the default route that the kernel prefers, nil when there is none.
func defaultRoute(family int) (*netlink.Route, error) {
	routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	var best *netlink.Route
	for i := range routes {
		r := &routes[i]
		isDefault := r.Type == unix.RTN_UNICAST && (r.Dst == nil || r.Dst.IP.IsUnspecified() && ones(r) == 0)
		if isDefault && (best == nil || r.Priority < best.Priority) {
			best = r
		}
	}
	return best, nil
}

func ones(r *netlink.Route) int {
	n, _ := r.Dst.Mask.Size()
	return n
}

// linkOf is the interface of a route; of several paths the first counts.
func linkOf(r *netlink.Route) int {
	if r.LinkIndex == 0 && len(r.MultiPath) > 0 {
		return r.MultiPath[0].LinkIndex
	}
	return r.LinkIndex
}
