package ipvsctl

import (
	"net/netip"
	"slices"
	"time"
)

// How often the connections of a virtual server with draining real servers are looked at: soon at first, because most
// have none, then less and less often. The kernel keeps a closed TCP connection for two minutes (TIME_WAIT).
const (
	firstCheck = time.Second
	lastCheck  = 30 * time.Second
)

// follow notes which real servers drain after a change, and since when; a deadline that is set already stays.
func (e *Engine) follow(s *server, now time.Time) {
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
			deadline = now.Add(e.options.GracefulPeriod)
			s.check, s.interval = now.Add(firstCheck), firstCheck
		}
		s.deadlines[r.Addr] = deadline
	}
	if len(s.deadlines) > 0 && !s.draining {
		s.draining = true
		e.drains = append(e.drains, s)
	}
}

// Tick ends drains: a real server goes when its connections are gone or its time is over, a virtual server that is no
// longer wanted goes with its last real server. It also repeats the removals that failed. Call it about once a second. It
// looks only at what is due, and does nothing before the first Remove.
func (e *Engine) Tick(now time.Time) (Result, error) {
	if !e.settled {
		return Result{}, nil
	}
	var r Result
	e.drains = slices.DeleteFunc(e.drains, func(s *server) bool {
		// A server with a change waiting is left to Add or Remove.
		if len(s.deadlines) > 0 && !s.dirty && s.due(now) {
			if err := e.advance(&r, s, now); err != nil {
				r.Failures = append(r.Failures, Failure{Name: s.owner, Key: s.key, Err: err})
			}
			e.follow(s, now)
			s.wait(now)
		}
		s.draining = len(s.deadlines) > 0
		return !s.draining
	})
	e.dropOrphans(&r)
	e.sweep(&r, now, func(s *server) bool { return s.want == nil && s.failed })
	return r, e.conclude(&r)
}

func (s *server) due(now time.Time) bool {
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

func (s *server) wait(now time.Time) {
	s.interval = min(2*s.interval, lastCheck)
	s.check = now.Add(s.interval)
}

// advance looks at the connections of one virtual server and does what they allow.
func (e *Engine) advance(r *Result, s *server, now time.Time) error {
	ours, err := e.ours(s.key)
	if err != nil {
		return err
	}
	if !ours {
		return e.forget(r, s)
	}
	list, err := e.kernel.reals(s.key)
	if err != nil {
		return &KeyError{Key: s.key, Err: err}
	}
	left := 0
	var gone []RealServer
	for _, drain := range unwanted(s.has.reals, s.want) {
		i, found := findReal(list, drain.Addr)
		if !found || list[i].active+list[i].inactive == 0 || !now.Before(s.deadlines[drain.Addr]) {
			gone = append(gone, drain)
		} else {
			left++
		}
	}
	if s.want == nil && left == 0 {
		return e.end(r, s)
	}
	for _, drained := range gone {
		if err := e.do(r, s, Operation{Kind: DeleteReal, Server: s.value(), Real: drained}); err != nil {
			return err
		}
	}
	return nil
}

// end deletes a virtual server that nobody wants, with all its real servers.
func (e *Engine) end(r *Result, s *server) error {
	if err := e.release(r, s); err != nil {
		return err
	}
	return e.do(r, s, Operation{Kind: DeleteServer, Server: s.value()})
}

// forget drops what nobody wants of a virtual server that is gone from the kernel, whoever has the key now. What is wanted
// of it is for Intact to find, and for the next pass to make again.
func (e *Engine) forget(r *Result, s *server) error {
	if s.want != nil {
		s.suspect = true
		for _, drain := range unwanted(s.has.reals, s.want) {
			s.has.note(Operation{Kind: DeleteReal, Real: drain})
		}
		return nil
	}
	if err := e.release(r, s); err != nil {
		return err
	}
	s.has = applied{}
	return nil
}

func sortReals(list []foundReal) {
	slices.SortFunc(list, func(a, b foundReal) int { return a.compare(b.RealServer) })
}

func findReal(list []foundReal, addr netip.AddrPort) (int, bool) {
	return slices.BinarySearchFunc(list, addr, func(r foundReal, a netip.AddrPort) int { return r.Addr.Compare(a) })
}
