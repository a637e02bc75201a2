package ipvsctl

import (
	"cmp"
	"errors"
	"slices"
	"syscall"
	"time"
)

// Add brings the wanted virtual servers to the wanted state: it completes new ones, changes others, and drains real
// servers that are no longer wanted. Call it before the nft transaction of a pass. The error sums up Result.Failures.
func (e *Engine) Add(now time.Time) (Result, error) {
	var r Result
	e.sweep(&r, now, func(s *managed) bool { return s.want != nil })
	return r, e.conclude(&r)
}

// Remove drains or deletes the virtual servers that are no longer wanted. Call it after the nft transaction of a
// pass, when no rule leads to them. The first Remove does the same with all that an earlier process left and no Set
// has claimed. So call it only when everything wanted has been Set. The error sums up Result.Failures.
func (e *Engine) Remove(now time.Time) (Result, error) {
	if !e.locals.settled {
		for _, s := range e.servers { // what an earlier process left and no Set has claimed
			if s.want == nil {
				e.markDirty(s)
			}
		}
		e.locals.settled = true
	}
	var r Result
	e.dropOrphans(&r) // before sweep, which frees addresses: dropOrphans would delete their routes again
	e.sweep(&r, now, func(s *managed) bool { return s.want == nil })
	return r, e.conclude(&r)
}

// Tick ends drains. It deletes a real server when its connections are gone or its period is over, and a virtual
// server that is no longer wanted with its last real server. It also repeats removals that failed. Call it about once
// a second: it looks only at what is due, and does nothing before the first Remove. The error sums up
// Result.Failures.
func (e *Engine) Tick(now time.Time) (Result, error) {
	if !e.locals.settled {
		return Result{}, nil
	}
	var r Result
	e.drains = slices.DeleteFunc(e.drains, func(s *managed) bool {
		// Add or Remove will look at a dirty virtual server.
		if len(s.deadlines) > 0 && !s.dirty && s.due(now) {
			if err := e.checkDrains(&r, s, now); err != nil {
				r.Failures = append(r.Failures, Failure{Name: s.owner, Key: s.key, Err: err})
			}
			e.trackDrains(s, now)
			s.interval = min(2*s.interval, lastCheck)
			s.check = now.Add(s.interval)
		}
		s.draining = len(s.deadlines) > 0
		return !s.draining
	})
	e.dropOrphans(&r)
	e.sweep(&r, now, func(s *managed) bool { return s.want == nil && s.failed })
	return r, e.conclude(&r)
}

// dropOrphans deletes the routes that an earlier process left and that no virtual server needs.
func (e *Engine) dropOrphans(r *Result) {
	for _, addr := range e.locals.orphans() {
		s := &managed{key: Key{Addr: addr}}
		e.locals.unsure[addr] = true // so that release deletes the route
		if err := e.locals.release(e.doer(r), s); err != nil {
			r.Failures = append(r.Failures, Failure{Key: s.key, Err: err})
		}
	}
}

// conclude completes a result and returns its error.
func (e *Engine) conclude(r *Result) error {
	r.Released = e.locals.released()
	return r.error()
}

// sweep works on the dirty virtual servers that are selected. The others stay dirty.
func (e *Engine) sweep(r *Result, now time.Time, selected func(*managed) bool) {
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
func (e *Engine) converge(r *Result, s *managed) error {
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
func (e *Engine) refresh(r *Result, s *managed) error {
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

// run executes the plan. The address becomes local after its virtual server is complete, and stops being local before
// the virtual server is deleted. Otherwise packets to it would reach processes that listen on all addresses of the
// host (k/k #72236).
func (e *Engine) run(r *Result, s *managed) error {
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
			if err := e.locals.release(e.doer(r), s); err != nil {
				return err
			}
		}
		if err := e.do(r, s, o); err != nil {
			return err
		}
	}
	switch {
	case s.want != nil && s.want.Local:
		return e.locals.acquire(e.doer(r), s)
	case s.want != nil || !s.has.exists:
		return e.locals.release(e.doer(r), s)
	}
	return nil
}

// Intact compares some virtual servers with what the kernel has: about three, and all of them in allWithin calls. It returns
// false when one differs, for example because someone ran "ipvsadm -C", or when a synchronization daemon differs. If repair is
// true, the next Add then reads every virtual server and repairs it. A daemon is put right at once. What cannot be compared counts
// as intact, so that the error of one thing hides nothing of the others.
func (e *Engine) Intact(repair bool) (bool, error) {
	daemons, daemonErr := e.daemonsIntact(repair)
	servers, err := e.serversIntact(repair)
	return daemons && servers, errors.Join(daemonErr, err)
}

// allWithin is in how many calls Intact compares everything: within ten minutes, if it is called every five seconds.
const allWithin = 120

func (e *Engine) serversIntact(repair bool) (bool, error) {
	for range max(3, (len(e.servers)+allWithin-1)/allWithin) {
		s := e.nextToCompare()
		if s == nil {
			break
		}
		same, err := e.intact(s)
		if err != nil {
			return true, err
		}
		if !same && repair {
			e.distrust()
		}
		if !same {
			return false, nil
		}
	}
	return true, nil
}

// Cleanup removes everything that has the mark of this package, and cuts its connections. It returns the number of
// operations.
func Cleanup(o Options) (int, error) {
	o.GracefulPeriod, o.Sync = 0, nil
	e, err := Open(o)
	if err != nil {
		return 0, err
	}
	defer e.Close()
	r, err := e.Remove(time.Now())
	ended, daemonErr := e.SetDaemons()
	return len(r.Operations) + len(ended), errors.Join(err, daemonErr)
}
