package conntrack

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Cleaner deletes stale flows from the kernel. Any goroutine may use it.
type Cleaner struct {
	table flowTable
	busy  sync.Mutex // the table
	spare func() (flowTable, error)
}

// flowTable is the kernel's table of flows. Tests inject faults here.
type flowTable interface {
	// dump calls fn for the flows of a family that pass the filter, and maybe for others.
	dump(family state.Family, f filter, fn func(*entry)) error
	// remove deletes entries that dump found, and returns how many still existed.
	remove(family state.Family, keys [][]byte) (int, error)
	Close() error
}

// Open connects to the kernel.
func Open(o Options) (*Cleaner, error) {
	t, err := dial(o)
	if err != nil {
		return nil, err
	}
	return &Cleaner{table: t, spare: func() (flowTable, error) { return dial(o) }}, nil
}

// Close closes the connection to the kernel.
func (c *Cleaner) Close() error { return c.table.Close() }

// Result is what a cleaning did in one family.
type Result struct {
	Family     state.Family
	Deleted    int // stale UDP flows
	Reset      int // open TCP connections to endpoints that are gone or failed
	Unanswered int // TCP connections without an answer
	Took       time.Duration
}

// ErrHurried means that others wait for the end of a cleaning, and that it has left the rest to a later one.
var ErrHurried = errors.New("others wait")

// Clean deletes the stale flows. Node ports answer at nodePortAddrs, which has no 0.0.0.0 and no [::]. After an error
// some stale flows may remain. Another call with the same values is safe, and finds them. Calls at the same time have sockets of their
// own, so that none waits for the walk of another.
func (c *Cleaner) Clean(s Stale, nodePortAddrs []netip.Addr) (results []Result, err error) {
	if c.busy.TryLock() {
		defer c.busy.Unlock()
		return c.cleanAll(&s, nodePortAddrs)
	}
	t, err := c.spare()
	if err != nil {
		return nil, fmt.Errorf("open another socket to delete stale flows: %w; they stay until a later attempt succeeds", err)
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	return (&Cleaner{table: t}).cleanAll(&s, nodePortAddrs)
}

func (c *Cleaner) cleanAll(s *Stale, nodePortAddrs []netip.Addr) ([]Result, error) {
	var results []Result
	var errs []error
	addrs := make(map[netip.Addr]bool, len(nodePortAddrs))
	for _, a := range nodePortAddrs {
		addrs[a] = true
	}
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		udp, tcp, unanswered := s.frontends(family, false), s.frontends(family, true), s.unansweredFilters(family)
		hurried := func() bool { return errors.Is(errors.Join(errs...), ErrHurried) }
		if len(udp)+len(tcp)+len(unanswered) == 0 || hurried() {
			continue
		}
		start := time.Now()
		r := Result{Family: family}
		var err error
		if len(unanswered) > 0 { // first: their clients wait
			if r.Unanswered, err = c.cleanUnanswered(s, family, unanswered, addrs); err != nil {
				errs = append(errs, err)
			}
		}
		for _, of := range []struct {
			list []Frontend
			n    *int
		}{{udp, &r.Deleted}, {tcp, &r.Reset}} {
			if hurried() {
				break
			}
			if *of.n, err = c.clean(s, family, of.list, addrs); errors.Is(err, ErrHurried) {
				errs = append(errs, err)
			} else if err != nil {
				errs = append(errs, fmt.Errorf("delete stale %s flows of %d frontends: %w; flows that remain go on to "+
					"endpoints that may be gone, until a later attempt succeeds", family.Version(), len(of.list), err))
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
	return c.delete(s, family, filters(list), func(e *entry) *int {
		if e.TCP != list[0].TCP {
			return nil
		}
		return s.judge(e.Flow, addrs)
	})
}

// cleanUnanswered deletes connections of a family without an answer, and returns how many there were. If the kernel resizes the
// table again and again, some flows are missed. Their clients repeat their packets, and a later cleaning finds these flows.
func (c *Cleaner) cleanUnanswered(s *Stale, family state.Family, filters []filter, addrs map[netip.Addr]bool) (int, error) {
	alike := 0
	n, err := c.delete(s, family, filters, func(e *entry) *int {
		if s.isUnanswered(e, addrs) {
			return &alike
		}
		return nil
	})
	if err != nil && !errors.Is(err, ErrHurried) {
		err = fmt.Errorf("delete %s connections without an answer to endpoints that are left out or gone: %w; their clients go on trying "+
			"these endpoints, until a later attempt succeeds or they give up", family.Version(), err)
	}
	return n, err
}

// atLeast is how many flows a cleaning deletes although others wait: 8 µs each.
const atLeast = 8192

// delete deletes the flows that pass one of the filters and are stale, the first ones of those who have few. It returns how many
// still existed.
func (c *Cleaner) delete(s *Stale, family state.Family, filters []filter, stale func(*entry) *int) (n int, err error) {
	type one struct {
		key []byte
		of  *int
	}
	var all []one
	var errs []error
	for _, f := range filters {
		errs = append(errs, c.table.dump(family, f, func(e *entry) {
			if of := stale(e); of != nil {
				all = append(all, one{slices.Clone(e.key), of})
			}
		}))
	}
	slices.SortStableFunc(all, func(a, b one) int { return cmp.Compare(*a.of, *b.of) })
	for some := range slices.Chunk(all, atLeast) {
		if err := errors.Join(errs...); n > 0 && s.Hurried() {
			return n, cmp.Or(err, ErrHurried)
		}
		keys := make([][]byte, len(some))
		for i := range some {
			keys[i] = some[i].key
		}
		removed, err := c.table.remove(family, keys)
		n += removed
		if err != nil {
			errs = append(errs, err)
			break
		}
	}
	return n, errors.Join(errs...)
}

// filters find the flows to the frontends. Those for IPv6 have no address: the kernel (seen on 6.18) compares it the wrong
// way round, and returns the flows to every other address. A filter of the kernel has one port, so a range needs all flows.
func filters(list []Frontend) []filter {
	protocol := uint8(unix.IPPROTO_UDP)
	if list[0].TCP {
		protocol = unix.IPPROTO_TCP
	}
	out := make([]filter, len(list))
	for i, f := range list {
		if f.Family == state.IPv6 {
			f.Addr = netip.Addr{}
		}
		out[i] = filter{protocol: protocol, to: netip.AddrPortFrom(f.Addr, f.Port)}
	}
	slices.SortFunc(out, func(a, b filter) int { return a.to.Compare(b.to) })
	out = slices.Compact(out)
	if len(out) > maxFiltered || slices.ContainsFunc(list, func(f Frontend) bool { return f.EndPort != 0 }) {
		return []filter{{protocol: protocol}}
	}
	return out
}

// Reason explains an error of a cleaning in terms of what an administrator can change.
func Reason(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return "the process lacks the capability NET_ADMIN"
	case errors.Is(err, unix.EINVAL):
		// nfnetlink answers this when nobody has registered the subsystem of connection tracking.
		return "the kernel probably lacks the module nf_conntrack_netlink"
	case errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return "the kernel is short of memory"
	}
	return "unexpected; the kernel may be busy"
}
