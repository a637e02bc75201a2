package conntrack

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Load is the number of flows on a route. Active flows are established TCP and SCTP connections, and UDP flows with
// packets in both directions for more than two seconds. (The kernel calls these assured, and keeps them for 120 s
// without a packet, other UDP flows for 30 s.) All other flows are inactive: connections that begin or end, TIME_WAIT,
// and a single question with its answer.
type Load struct{ Active, Inactive int }

// Count reads the kernel's table once and counts the translated flows of a family.
func Count(o Options, family state.Family) (map[Route]Load, error) {
	k, err := dial(o)
	if err != nil {
		return nil, err
	}
	loads, err := k.count(family)
	if err != nil {
		err = fmt.Errorf("count %v flows: %w", family, err)
	}
	return loads, errors.Join(err, k.close())
}

func (k *kernel) count(family state.Family) (loads map[Route]Load, err error) {
	ask := func(r *request) { r.dump(family, filter{status: statusDNAT, mask: statusDNAT}) }
	err = k.read(ask, true, func() { loads = map[Route]Load{} }, func(e *entry) {
		if e.DNAT {
			loads[e.route()] = loads[e.route()].with(e.active())
		}
	})
	return loads, err
}

func (l Load) with(active bool) Load {
	if active {
		l.Active++
	} else {
		l.Inactive++
	}
	return l
}

// Former lists the frontends that an earlier process served and that have UDP flows. The function has reports whether
// the earlier process served a frontend; a node port is one at each address at which it answered. A Tracker that starts with this list finds the frontends that were removed in
// the meantime; a new process knows only the present frontends.
//
// Former reads the kernel's table once for each family, and calls has only for frontends of flows in it.
func Former(o Options, has func(Frontend) (bool, error)) (list []Frontend, err error) {
	var errs []error
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		loads, err := Count(o, family)
		found, hasErr := formerIn(family, loads, has)
		list, errs = append(list, found...), append(errs, err, hasErr)
	}
	return list, errors.Join(errs...)
}

func formerIn(family state.Family, loads map[Route]Load, has func(Frontend) (bool, error)) (list []Frontend, err error) {
	used := map[Frontend]bool{}
	for r := range loads {
		if r.Protocol == unix.IPPROTO_UDP {
			used[Frontend{Addr: r.Dst.Addr(), Port: r.Dst.Port(), Family: family}] = true
		}
	}
	sorted := slices.SortedFunc(maps.Keys(used), func(a, b Frontend) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	for _, f := range sorted {
		is, err := has(f)
		if err != nil {
			return list, err
		}
		if is {
			list = append(list, f)
		}
	}
	return list, nil
}
