package ipvsctl

import (
	"net/netip"
	"slices"
	"time"
)

// When the engine looks at the connections of a virtual server with draining real servers: first after a second,
// because most have none, then at growing intervals. The kernel keeps a closed TCP connection for two minutes
// (TIME_WAIT).
const (
	firstCheck = time.Second
	lastCheck  = 30 * time.Second
)

// trackDrains finds out, after a change of a virtual server, which of its real servers drain. A real server that drains
// already keeps its deadline.
func (e *Engine) trackDrains(s *managed, now time.Time) {
	if s.want == nil && !s.has.exists && !s.dirty {
		delete(e.servers, s.key)
		s.deadlines = nil
		return
	}
	old := s.deadlines
	s.deadlines = nil
	for _, r := range unwanted(s.has.reals, s.want) {
		if s.deadlines == nil {
			s.deadlines = map[netip.AddrPort]time.Time{}
		}
		deadline, known := old[r.Addr]
		if !known {
			deadline = now.Add(e.options.period(s))
			s.check, s.interval = now.Add(firstCheck), firstCheck
		}
		s.deadlines[r.Addr] = deadline
	}
	if len(s.deadlines) > 0 && !s.draining {
		s.draining = true
		e.drains = append(e.drains, s)
	}
}

// unlimited is longer than any connection.
const unlimited = 100 * 365 * 24 * time.Hour

// period is how long connections to real servers that are no longer wanted may go on.
func (o *Options) period(s *managed) time.Duration {
	if s.has.adopted && s.want == nil && o.graceful() {
		return unlimited
	}
	return o.GracefulPeriod
}

func (s *managed) due(now time.Time) bool {
	if !now.Before(s.check) {
		return true
	}
	for _, deadline := range s.deadlines {
		if !now.Before(deadline) {
			return true
		}
	}
	return false
}

// checkDrains looks at the connections of one virtual server and deletes the real servers that have drained.
func (e *Engine) checkDrains(r *Result, s *managed, now time.Time) error {
	ours, err := e.ours(s.key)
	if err != nil {
		return err
	}
	if !ours {
		return e.forget(r, s)
	}
	list, err := e.kernel.Reals(s.key)
	if err != nil {
		return &KeyError{Key: s.key, Err: err}
	}
	remaining := 0
	var drained []RealServer
	for _, real := range unwanted(s.has.reals, s.want) {
		i, exists := slices.BinarySearchFunc(list, real.Addr, func(r RealStatus, a netip.AddrPort) int { return r.Addr.Compare(a) })
		if !exists || list[i].Active+list[i].Inactive == 0 || !now.Before(s.deadlines[real.Addr]) {
			drained = append(drained, real)
		} else {
			remaining++
		}
	}
	if s.want == nil && remaining == 0 {
		if err := e.locals.release(e.doer(r), s); err != nil {
			return err
		}
		return e.do(r, s, Operation{Kind: DeleteServer, Server: s.value()})
	}
	for _, real := range drained {
		if err := e.do(r, s, Operation{Kind: DeleteReal, Server: s.value(), Real: real}); err != nil {
			return err
		}
	}
	return nil
}

// forget handles a virtual server that is no longer in the kernel. Another tool may have its key now, so forget
// deletes nothing there. When the virtual server is still wanted, only its drains end: the next Intact finds that it
// is missing, and the next pass makes it again.
func (e *Engine) forget(r *Result, s *managed) error {
	if s.want != nil {
		s.stale = true
		e.compare = append(e.compare, s)
		for _, real := range unwanted(s.has.reals, s.want) {
			s.has.record(Operation{Kind: DeleteReal, Real: real})
		}
		return nil
	}
	if err := e.locals.release(e.doer(r), s); err != nil {
		return err
	}
	s.has = applied{}
	return nil
}
