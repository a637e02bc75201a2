package ipvsctl

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/verdict-proxy/verdict/nft/nlmsg"
)

// Add brings the wanted virtual servers to the wanted state: it completes new ones, changes others, and drains real
// servers that are no longer wanted. Call it before the nft transaction of a pass. The error sums up Result.Failures.
func (e *Engine) Add(now time.Time) (Result, error) {
	var r Result
	e.sweep(&r, now, func(s *server) bool { return s.want != nil })
	r.NotLocal = e.locals.notLocal()
	return r, e.conclude(&r)
}

// Remove drains or deletes the virtual servers that are no longer wanted. Call it after the nft transaction of a
// pass, when no rule leads to them. The first Remove does the same with all that an earlier process left and no Set
// has claimed. So call it only when everything wanted has been Set. The error sums up Result.Failures.
func (e *Engine) Remove(now time.Time) (Result, error) {
	if !e.locals.settled {
		e.settle()
	}
	var r Result
	e.locals.dropOrphans(&r) // before sweep, which frees addresses: dropOrphans would delete their routes again
	e.sweep(&r, now, func(s *server) bool { return s.want == nil })
	return r, e.conclude(&r)
}

// conclude completes a result and returns its error.
func (e *Engine) conclude(r *Result) error {
	r.unsure = slices.SortedFunc(maps.Keys(e.locals.unsure), netip.Addr.Compare)
	for _, f := range r.Failures {
		if nlmsg.Lost(f.Err) {
			e.reopen(f.Err)
			break
		}
	}
	return r.error()
}

// sweep works on the dirty virtual servers that are selected. The others stay dirty.
func (e *Engine) sweep(r *Result, now time.Time, selected func(*server) bool) {
	waiting := e.dirty
	e.dirty = nil
	for _, s := range waiting {
		if !selected(s) {
			e.dirty = append(e.dirty, s)
			continue
		}
		s.dirty, s.failed = false, false
		before := len(r.Operations)
		err := e.converge(r, s)
		r.count(cmp.Or(s.owner, s.former), len(r.Operations)-before)
		if err != nil {
			r.Failures = append(r.Failures, Failure{Name: s.owner, Key: s.key, Err: err})
			s.stale, s.failed = true, true
			e.markDirty(s)
		}
		e.trackDrains(s, now)
	}
}

// converge brings one virtual server to the wanted state. When the kernel's answer contradicts what the engine knows,
// converge reads the virtual server and tries once more.
func (e *Engine) converge(r *Result, s *server) error {
	if s.stale {
		if err := e.refresh(r, s); err != nil {
			return err
		}
	}
	err := e.run(r, s)
	if !contradicts(err) {
		return err
	}
	if err := e.refresh(r, s); err != nil {
		return err
	}
	return e.run(r, s)
}

// contradicts reports whether an error means that the kernel has something else than the engine knows.
func contradicts(err error) bool {
	return errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH)
}

// refresh reads what the kernel has of a virtual server. It adds the local route again, which may be gone as well.
func (e *Engine) refresh(r *Result, s *server) error {
	has, err := e.read(s.key)
	if errors.Is(err, ErrForeign) && s.want == nil {
		err = nil // the engine's own virtual server is gone
	}
	if err != nil {
		return err
	}
	s.has, s.stale = has, false
	if s.local {
		return e.do(r, s, Operation{Kind: AddAddress, Server: s.value()})
	}
	return nil
}

// value returns the virtual server for use in operations.
func (s *server) value() *VirtualServer {
	if s.want != nil {
		return s.want
	}
	return &VirtualServer{Key: s.key, Scheduler: s.has.header.scheduler}
}

// plan lists the operations for the virtual server, without those for its address.
func (s *server) plan(graceful bool) Operations {
	if s.want == nil {
		return removals(&s.has, s.value(), graceful)
	}
	return additions(&s.has, s.want, graceful)
}

// run executes the plan. The address becomes local after its virtual server is complete, and stops being local before
// the virtual server is deleted. Otherwise packets to it would reach processes that listen on all addresses of the
// host (k/k #72236).
func (e *Engine) run(r *Result, s *server) error {
	if s.want == nil && s.has.exists {
		ours, err := e.ours(s.key)
		if err != nil {
			return err
		}
		if !ours {
			return e.forget(r, s)
		}
	}
	for _, o := range s.plan(e.options.graceful()) {
		if o.Kind == DeleteServer {
			if err := e.locals.release(r, s); err != nil {
				return err
			}
		}
		if err := e.do(r, s, o); err != nil {
			return err
		}
	}
	switch {
	case s.want != nil && s.want.Local:
		return e.locals.acquire(r, s)
	case s.want != nil || !s.has.exists:
		return e.locals.release(r, s)
	}
	return nil
}
