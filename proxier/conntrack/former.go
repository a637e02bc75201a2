package conntrack

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Former lists frontends that an earlier process served and that have UDP flows: has says whether it served one. A
// Tracker that starts with them finds out which are gone since. Without it nobody would: who starts knows only the
// frontends that there are now.
//
// The kernel's table is read once for each family, and has is asked about what is found there, not about all frontends.
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
			_ = ask(Frontend{Addr: r.Dst.Addr(), Port: r.Dst.Port(), Family: family}) || ask(Frontend{Port: r.Dst.Port(), Family: family})
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
