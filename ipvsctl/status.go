package ipvsctl

import (
	"slices"
	"time"
)

// Status is a virtual server as the kernel has it, with what it is doing.
type Status struct {
	Key
	Scheduler   string
	Flags       Flags
	Persistence time.Duration
	Connections uint64 // scheduled since it was made
	RealServers []RealStatus
}

// FlagText lists the scheduler's flags as ipvsadm's -b takes them.
func (s *Status) FlagText() string { return s.Flags.text(s.Scheduler) }

// RealStatus is a real server with its connections. A weight of 0 means that it drains, or that it was set so.
type RealStatus struct {
	RealServer
	Active, Inactive int
}

// List reads back the virtual servers that are ours, in excluded ranges too, sorted by address. It has a socket of its own
// and may be called from any goroutine, also in another process than the engine's.
func List(o Options) ([]Status, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	defer c.close()
	return list(c)
}

func list(k kernel) ([]Status, error) {
	servers, err := k.servers()
	if err != nil {
		return nil, err
	}
	var out []Status
	for _, f := range servers {
		if !f.ours {
			continue
		}
		reals, err := k.reals(f.key)
		if err != nil {
			return nil, err
		}
		out = append(out, status(f, reals))
	}
	slices.SortFunc(out, func(a, b Status) int { return a.compare(b.Key) })
	return out, nil
}

func status(f found, reals []foundReal) Status {
	s := Status{
		Key:         f.key,
		Scheduler:   f.header.scheduler,
		Flags:       f.header.flags,
		Persistence: time.Duration(f.header.persistence) * time.Second,
		Connections: f.connections,
		RealServers: make([]RealStatus, len(reals)),
	}
	for i, r := range reals {
		s.RealServers[i] = RealStatus{RealServer: r.RealServer, Active: r.active, Inactive: r.inactive}
	}
	return s
}
