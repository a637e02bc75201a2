package conntrack

import (
	"errors"
	"fmt"

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
