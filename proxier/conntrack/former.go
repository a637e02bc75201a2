package conntrack

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Former lists the frontends that an earlier process served and that have UDP flows. The function has reports whether
// the earlier process served a frontend; a node port is one at each address at which it answered. A Tracker that starts with this list finds the frontends that were removed in
// the meantime; a new process knows only the present frontends.
//
// Former reads the kernel's table once for each family, and calls has only for frontends of flows in it.
func Former(o Options, has func(Frontend) (bool, error)) (list []Frontend, err error) {
	var errs []error
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		loads, err := Count(o, family)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		found, err := former(family, loads, has)
		list, errs = append(list, found...), append(errs, err)
	}
	return list, errors.Join(errs...)
}

func former(family state.Family, loads map[Route]Load, has func(Frontend) (bool, error)) (list []Frontend, err error) {
	asked := map[Frontend]bool{}
	ask := func(f Frontend) bool {
		is, known := asked[f]
		if !known && err == nil {
			is, err = has(f)
			asked[f] = is
		}
		return is
	}
	for r := range loads {
		if r.Protocol == unix.IPPROTO_UDP {
			_ = ask(Frontend{Addr: r.Dst.Addr(), Port: r.Dst.Port(), Family: family})
		}
	}
	for f, is := range asked {
		if is {
			list = append(list, f)
		}
	}
	slices.SortFunc(list, func(a, b Frontend) int {
		return cmp.Or(netip.Addr.Compare(a.Addr, b.Addr), cmp.Compare(a.Port, b.Port))
	})
	return list, err
}
