package conntrack

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options configure a Cleaner.
type Options struct {
	// NetNS is a file descriptor of the network namespace to work in; 0: the present one.
	NetNS int
}

// Cleaner deletes stale flows from the kernel. Not for use by several goroutines at once.
type Cleaner struct {
	table table
	// whole: the kernel is older than 5.8 and ignores filters; every question is answered with the whole table.
	whole bool
}

// table is the kernel's table of flows.
type table interface {
	// dump calls fn for the UDP flows of a family to a frontend (nil: to anywhere). It may call it for others as well.
	dump(family state.Family, to *Frontend, fn func(*entry)) error
	// remove deletes entries that dump has delivered, and tells how many were still there.
	remove(family state.Family, keys [][]byte) (int, error)
	close() error
}

// entry is a flow together with what names it to the kernel. It is valid until dump calls again.
type entry struct {
	Flow
	udp bool
	key []byte
}

// Open connects to the kernel.
func Open(o Options) (*Cleaner, error) {
	t, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	return &Cleaner{table: t}, nil
}

// Close ends the connection to the kernel.
func (c *Cleaner) Close() error { return c.table.close() }

// Result is what cleaning did in one family.
type Result struct {
	Family  state.Family
	Deleted int
	Took    time.Duration
}

// Clean deletes the stale flows. nodePortAddrs are the addresses on which node ports answer, each by itself (no 0.0.0.0).
// After an error some flows may be left; cleaning again with the same values is safe and finds what is left.
func (c *Cleaner) Clean(s Stale, nodePortAddrs []netip.Addr) ([]Result, error) {
	var results []Result
	var errs []error
	addrs := make(map[netip.Addr]bool, len(nodePortAddrs))
	for _, a := range nodePortAddrs {
		addrs[a] = true
	}
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		list := s.frontends(family)
		if len(list) == 0 {
			continue
		}
		start := time.Now()
		n, err := c.clean(&s, family, list, addrs)
		results = append(results, Result{Family: family, Deleted: n, Took: time.Since(start)})
		if err != nil {
			errs = append(errs, fmt.Errorf("clean stale %v flows of %d frontends: %w; flows that are left go on to "+
				"endpoints that may be gone", family, len(list), err))
		}
	}
	return results, errors.Join(errs...)
}

// maxFiltered is up to how many frontends are asked for one by one. Each question makes the kernel walk its whole table,
// 20 ms for the usual 262,144 buckets even when they are empty. One question for all walks once, but delivers every UDP
// flow, 3 µs each: with 20,000 of them it costs as much as four.
const maxFiltered = 4

func (c *Cleaner) clean(s *Stale, family state.Family, list []Frontend, addrs map[netip.Addr]bool) (int, error) {
	var keys [][]byte
	collect := func(e *entry) {
		if e.udp && s.has(e.Flow, addrs) {
			keys = append(keys, append([]byte(nil), e.key...))
		}
	}
	err := c.look(family, list, collect)
	if len(keys) == 0 {
		return 0, err
	}
	n, removeErr := c.table.remove(family, keys)
	return n, errors.Join(err, removeErr)
}

// look delivers at least the flows to all the frontends. A flow can come twice.
func (c *Cleaner) look(family state.Family, list []Frontend, fn func(*entry)) error {
	questions := questions(list)
	if c.whole || len(questions) > maxFiltered {
		return c.table.dump(family, nil, fn)
	}
	for i := range questions {
		q := &questions[i]
		err := c.table.dump(family, q, func(e *entry) {
			c.whole = c.whole || !q.passes(e)
			fn(e)
		})
		if err != nil || c.whole {
			return err // of the whole table nothing is left to look at
		}
	}
	return nil
}

// questions are the filters that find the flows to all the frontends. IPv6 ones say nothing of the address: comparing it
// is upside down in the kernel (seen on 6.18), it delivers the flows to every address but the wanted one.
func questions(list []Frontend) []Frontend {
	out := slices.Clone(list)
	for i := range out {
		if out[i].Family == state.IPv6 {
			out[i].Addr = netip.Addr{}
		}
	}
	slices.SortFunc(out, func(a, b Frontend) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port))
	})
	return slices.Compact(out)
}

// passes tells whether a kernel that filters would deliver a flow.
func (f *Frontend) passes(e *entry) bool {
	return e.udp && e.Dst.Port() == f.Port && (!f.Addr.IsValid() || e.Dst.Addr() == f.Addr)
}
