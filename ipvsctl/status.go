package ipvsctl

import (
	"fmt"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// Status is a virtual server as the kernel has it, with its connections.
type Status struct {
	wire.Server
	RealServers []RealStatus
}

// FlagText returns the scheduler's flags in the notation of ipvsadm -b.
func (s *Status) FlagText() string { return s.Flags.Text(s.Scheduler) }

// WithoutNAT reports whether a real server gets packets as they are.
func (s *Status) WithoutNAT() bool {
	return slices.ContainsFunc(s.RealServers, func(r RealStatus) bool { return r.Forwarding.Method != wire.NAT })
}

// List returns the virtual servers that have the mark of this package, sorted by key, in excluded ranges as well. It
// gives up after a time; 0: never. It opens its own socket, so any goroutine may call it, in the engine's process or in another
// one.
func List(o Options, within time.Duration) ([]Status, error) {
	var end time.Time
	if within > 0 {
		end = time.Now().Add(within)
	}
	return withKernel(o, func(k kernel) ([]Status, error) { return listServers(k, end) })
}

// Find returns one virtual server of this package. It asks the kernel for this one only, so its cost does not depend on
// how many there are.
func Find(o Options, key Key) (s Status, ok bool, err error) {
	k, err := dial(o.NetNS)
	if err != nil {
		return s, false, err
	}
	defer k.Close()
	f, ok, err := k.Server(key)
	if err != nil || !ok || !f.Ours {
		return s, false, err
	}
	reals, err := k.Reals(key)
	if err != nil {
		return s, false, &KeyError{Key: key, Err: err}
	}
	return Status{f, reals}, true, nil
}

// listServers gives up at a time; zero: never.
func listServers(k kernel, end time.Time) ([]Status, error) {
	servers, err := k.Servers()
	if err != nil {
		return nil, err
	}
	var out []Status
	for _, f := range servers {
		if !f.Ours {
			continue
		}
		if !end.IsZero() && time.Now().After(end) {
			return nil, fmt.Errorf("list virtual servers: it takes too long; %d of %d were read", len(out), len(servers))
		}
		reals, err := k.Reals(f.Key)
		if err != nil {
			return nil, &KeyError{Key: f.Key, Err: err}
		}
		out = append(out, Status{f, reals})
	}
	slices.SortFunc(out, func(a, b Status) int { return a.Compare(b.Key) })
	return out, nil
}
