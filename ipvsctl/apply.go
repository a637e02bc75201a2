package ipvsctl

import (
	"cmp"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// Add brings the wanted virtual servers to the wanted state: it completes new ones, changes others, and drains real
// servers that are no longer wanted. Call it before the nft transaction of a pass. The error sums up Result.Failures.
func (e *Engine) Add(now time.Time) (Result, error) {
	var r Result
	e.sweep(&r, now, func(s *server) bool { return s.want != nil })
	r.NotLocal = e.notLocal()
	return r, e.conclude(&r)
}

// Remove drains or deletes the virtual servers that are no longer wanted. Call it after the nft transaction of a
// pass, when no rule leads to them. The first Remove does the same with all that an earlier process left and no Set
// has claimed. So call it only when everything wanted has been Set. The error sums up Result.Failures.
func (e *Engine) Remove(now time.Time) (Result, error) {
	if !e.settled {
		e.settle()
	}
	var r Result
	e.dropOrphans(&r) // before sweep, which frees addresses: dropOrphans would delete their routes again
	e.sweep(&r, now, func(s *server) bool { return s.want == nil })
	return r, e.conclude(&r)
}

// conclude completes a result and returns its error.
func (e *Engine) conclude(r *Result) error {
	r.unsure = slices.SortedFunc(maps.Keys(e.unsure), netip.Addr.Compare)
	for _, f := range r.Failures {
		if lost(f.Err) {
			e.reopen(f.Err)
			break
		}
	}
	return r.error()
}

// lost reports whether an error means that a socket is of no use any more: something closed its file descriptor.
func lost(err error) bool { return errors.Is(err, syscall.EBADF) || errors.Is(err, syscall.ENOTSOCK) }

// reopen replaces lost sockets. What failed without them is tried again. If that fails for the same reason, so is this.
func (e *Engine) reopen(why error) {
	if e.dial == nil {
		return
	}
	k, err := e.dial()
	if err != nil {
		return
	}
	if errors.Is(why, syscall.ENOTSOCK) { // the descriptor belongs to another file by now, and must not be closed
		e.taken = append(e.taken, e.kernel)
	} else {
		e.kernel.close()
	}
	e.kernel = k
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

func (e *Engine) graceful() bool { return e.options.GracefulPeriod > 0 }

// plan lists the operations for a virtual server, without those for its address.
func (e *Engine) plan(s *server) Operations {
	if s.want == nil {
		return removals(&s.has, s.value(), e.graceful())
	}
	return additions(&s.has, s.want, e.graceful())
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
	for _, o := range e.plan(s) {
		if o.Kind == DeleteServer {
			if err := e.release(r, s); err != nil {
				return err
			}
		}
		if err := e.do(r, s, o); err != nil {
			return err
		}
	}
	switch {
	case s.want != nil && s.want.Local:
		return e.acquire(r, s)
	case s.want != nil || !s.has.exists:
		return e.release(r, s)
	}
	return nil
}

// do executes one operation.
func (e *Engine) do(r *Result, s *server, o Operation) error {
	if err := e.kernel.execute(o); err != nil {
		return &OperationError{Operation: o, Err: err}
	}
	s.has.record(o)
	r.Operations = append(r.Operations, o)
	return nil
}
