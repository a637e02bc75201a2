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
	// NetNS is a file descriptor of the network namespace to work in; 0: the present one. It must stay open as long as
	// the Cleaner is used.
	NetNS int
}

// Cleaner deletes stale flows from the kernel. Only one goroutine may use it.
type Cleaner struct {
	table table
	// noFilters is set if the kernel is older than 5.8. It ignores filters, and answers each question with the whole
	// table.
	noFilters bool
}

// table is the kernel's table of flows.
type table interface {
	// dump calls fn for the flows of a family to a frontend (without a port: to all of its protocol; nil: to all of UDP). It
	// may call fn for other flows, too.
	dump(family state.Family, to *Frontend, fn func(*entry)) error
	// dumpUnanswered calls fn for the flows of a family that had no reply.
	dumpUnanswered(family state.Family, fn func(*entry)) error
	// remove deletes entries that dump found, and returns how many still existed.
	remove(family state.Family, keys [][]byte) (int, error)
	close() error
}

// entry is a flow in the kernel's table. It is valid until the function that dump called returns.
type entry struct {
	Flow
	udp, tcp bool
	answered bool   // packets came back
	key      []byte // the attributes that a deletion needs
}

// Open connects to the kernel.
func Open(o Options) (*Cleaner, error) {
	t, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	return &Cleaner{table: t}, nil
}

// Close closes the connection to the kernel.
func (c *Cleaner) Close() error { return c.table.close() }

// Result is what a cleaning did in one family.
type Result struct {
	Family     state.Family
	Deleted    int // stale UDP flows
	Reset      int // open TCP connections to endpoints that are gone or failed
	Unanswered int // TCP connections without an answer
	Took       time.Duration
}

// Clean deletes the stale flows. Node ports answer at nodePortAddrs, which has no 0.0.0.0 and no [::]. After an error
// some stale flows may remain. Another call with the same values is safe, and finds them.
func (c *Cleaner) Clean(s Stale, nodePortAddrs []netip.Addr) ([]Result, error) {
	var results []Result
	var errs []error
	addrs := make(map[netip.Addr]bool, len(nodePortAddrs))
	for _, a := range nodePortAddrs {
		addrs[a] = true
	}
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		udp, tcp, unanswered := s.frontends(family, false), s.frontends(family, true), s.hasUnanswered(family)
		if len(udp)+len(tcp) == 0 && !unanswered {
			continue
		}
		start := time.Now()
		r := Result{Family: family}
		var err error
		if unanswered { // first: their clients wait
			if r.Unanswered, err = c.cleanUnanswered(&s, family, addrs); err != nil {
				errs = append(errs, err)
			}
		}
		for _, of := range []struct {
			list []Frontend
			n    *int
		}{{udp, &r.Deleted}, {tcp, &r.Reset}} {
			if *of.n, err = c.clean(&s, family, of.list, addrs); err != nil {
				errs = append(errs, fmt.Errorf("delete stale %v flows of %d frontends: %w; flows that remain go on to "+
					"endpoints that may be gone, until a later attempt succeeds", family, len(of.list), err))
			}
		}
		r.Took = time.Since(start)
		results = append(results, r)
	}
	return results, errors.Join(errs...)
}

// maxFiltered is the largest number of frontends that Clean asks for one by one. For each question the kernel walks
// over its whole table: 20 ms for the usual 262,144 buckets, even if they are empty. For a question without a frontend
// the kernel walks once, but returns every UDP flow, 3 µs each. With 20,000 UDP flows, it takes as long as four
// questions.
const maxFiltered = 4

func (c *Cleaner) clean(s *Stale, family state.Family, list []Frontend, addrs map[netip.Addr]bool) (int, error) {
	if len(list) == 0 {
		return 0, nil
	}
	var keys [][]byte
	collect := func(e *entry) {
		if (e.udp || e.tcp) && e.tcp == list[0].TCP && s.has(e.Flow, addrs) {
			keys = append(keys, append([]byte(nil), e.key...))
		}
	}
	err := c.find(family, list, collect)
	if len(keys) == 0 {
		return 0, err
	}
	n, removeErr := c.table.remove(family, keys)
	return n, errors.Join(err, removeErr)
}

// find calls fn for all flows to the frontends, and maybe for others. It may call fn for a flow twice.
func (c *Cleaner) find(family state.Family, list []Frontend, fn func(*entry)) error {
	questions := questions(list)
	ranged := slices.ContainsFunc(questions, func(f Frontend) bool { return f.EndPort != 0 }) // the kernel's filter has one port
	if c.noFilters || ranged || len(questions) > maxFiltered {
		var all *Frontend // of UDP
		if list[0].TCP {
			all = &Frontend{Family: family, TCP: true}
		}
		return c.table.dump(family, all, fn)
	}
	for i := range questions {
		q := &questions[i]
		err := c.table.dump(family, q, func(e *entry) {
			c.noFilters = c.noFilters || !q.passes(e)
			fn(e)
		})
		if err != nil || c.noFilters {
			return err // the answer was the whole table
		}
	}
	return nil
}

// questions are the filters that find the flows to the frontends. Those for IPv6 have no address: the kernel (seen on
// 6.18) compares it the wrong way round, and returns the flows to every other address.
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

// passes reports whether a flow passes the filter for the frontend.
func (f *Frontend) passes(e *entry) bool {
	return (e.udp && !f.TCP || e.tcp && f.TCP) && e.Dst.Port() == f.Port && (!f.Addr.IsValid() || e.Dst.Addr() == f.Addr)
}
