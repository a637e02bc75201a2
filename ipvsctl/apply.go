package ipvsctl

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// Result is what one Add, Remove or Tick did.
type Result struct {
	Operations Operations // the ones that the kernel took, in this order
	Failures   []Failure
	// NotLocal lists the addresses that Coming named before this Add and that are certainly not local after it. They need
	// no guard. An address that may be local after an error is not among them: it keeps its guard until Released has it.
	NotLocal []netip.Addr

	unsure []netip.Addr // addresses that may be local after an error
}

// Released lists the addresses that were local and are not any more. They need no guard.
func (r *Result) Released() []netip.Addr {
	var out []netip.Addr
	for _, o := range r.Operations {
		switch addr := o.Server.Addr; o.Kind {
		case DeleteAddress:
			out = append(out, addr)
		case AddAddress:
			out = slices.DeleteFunc(out, func(a netip.Addr) bool { return a == addr })
		}
	}
	return slices.DeleteFunc(out, func(a netip.Addr) bool { return slices.Contains(r.unsure, a) })
}

// Failure is a virtual server that the engine could not bring to the wanted state. The next Add, Remove or Tick reads it
// from the kernel and tries again. A failure of one virtual server does not affect the others.
type Failure struct {
	Name string // of the service port; "" when the virtual server is being removed
	Key  Key
	Err  error // an *OperationError or a *KeyError
}

// OperationError is an operation that the kernel refused, with its cause.
type OperationError struct {
	Operation Operation
	Err       error
}

func (e *OperationError) Error() string {
	text := fmt.Sprintf("%s %s: %v", e.Operation.Kind, e.Operation.object(), e.Err)
	if e.unknownScheduler() {
		text += fmt.Sprintf(" (the kernel has no scheduler %s, module %s)", e.Operation.Server.Scheduler, Module(e.Operation.Server.Scheduler))
	}
	return text
}

func (e *OperationError) Unwrap() error { return e.Err }

func (e *OperationError) unknownScheduler() bool {
	return (e.Operation.Kind == AddServer || e.Operation.Kind == EditServer) && errors.Is(e.Err, syscall.ENOENT)
}

// error makes one error of the failures.
func (r *Result) error() error {
	switch len(r.Failures) {
	case 0:
		return nil
	case 1:
		return fmt.Errorf("IPVS: %w; tried again with the next pass", r.Failures[0].Err)
	}
	return fmt.Errorf("IPVS: %w; and %d other virtual servers; tried again with the next pass", r.Failures[0].Err, len(r.Failures)-1)
}

// Add brings the virtual servers that are wanted to where they should be: new ones complete, changed ones changed, real
// servers that are no longer wanted drained. It belongs before the nft transaction of a pass.
func (e *Engine) Add(now time.Time) (Result, error) {
	var r Result
	e.sweep(&r, now, func(s *server) bool { return s.want != nil })
	r.NotLocal = e.notLocal()
	return r, e.conclude(&r)
}

// Remove gives up the virtual servers that are no longer wanted. It belongs after the nft transaction of a pass, when
// nothing leads to them any more. The first Remove also gives up what an earlier process left and no Set has claimed: call
// it when everything wanted has been Set.
func (e *Engine) Remove(now time.Time) (Result, error) {
	if !e.settled {
		e.settle()
	}
	var r Result
	e.dropOrphans(&r) // first: an address that is still in use is not an orphan
	e.sweep(&r, now, func(s *server) bool { return s.want == nil })
	return r, e.conclude(&r)
}

// conclude completes a result and makes one error of its failures.
func (e *Engine) conclude(r *Result) error {
	r.unsure = slices.SortedFunc(maps.Keys(e.unsure), netip.Addr.Compare)
	return r.error()
}

// sweep works on the dirty servers of one kind and leaves the others for later.
func (e *Engine) sweep(r *Result, now time.Time, mine func(*server) bool) {
	waiting := e.dirty
	e.dirty = nil
	for _, s := range waiting {
		if !mine(s) {
			e.dirty = append(e.dirty, s)
			continue
		}
		s.dirty, s.failed = false, false
		if err := e.converge(r, s); err != nil {
			e.fail(r, s, err)
		}
		e.follow(s, now)
	}
}

func (e *Engine) fail(r *Result, s *server, err error) {
	r.Failures = append(r.Failures, Failure{Name: s.owner, Key: s.key, Err: err})
	s.suspect, s.failed = true, true
	e.touch(s)
}

// converge changes the kernel's state of one virtual server into the wanted one. When the kernel turns out to have
// something else than we thought, that is read and the rest tried once more.
func (e *Engine) converge(r *Result, s *server) error {
	if s.suspect {
		if err := e.refresh(r, s); err != nil {
			return err
		}
	}
	err := e.run(r, s)
	if !surprising(err) {
		return err
	}
	if err := e.refresh(r, s); err != nil {
		return err
	}
	return e.run(r, s)
}

// refresh replaces what we think that the kernel has by what it has.
func (e *Engine) refresh(r *Result, s *server) error {
	has, err := e.read(s.key)
	if errors.Is(err, ErrForeign) && s.want == nil {
		err = nil // ours is gone already
	}
	if err != nil {
		return err
	}
	s.has, s.suspect = has, false
	if s.local {
		return e.do(r, s, Operation{Kind: AddAddress, Server: s.value()})
	}
	return nil
}

// value is the virtual server as operations name it.
func (s *server) value() *VirtualServer {
	if s.want != nil {
		return s.want
	}
	return &VirtualServer{Key: s.key, Scheduler: s.has.header.scheduler}
}

func (e *Engine) graceful() bool { return e.options.GracefulPeriod > 0 }

// plan lists what is to be done for a virtual server, apart from its address.
func (e *Engine) plan(s *server) Operations {
	if s.want == nil {
		return removals(&s.has, s.value(), e.graceful())
	}
	return additions(&s.has, s.want, e.graceful())
}

// run does what is planned. An address becomes local when its virtual server is complete and stops being so before the
// virtual server goes: in between, packets to it would reach whatever listens on all addresses of the host (k/k #72236).
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

func (e *Engine) do(r *Result, s *server, o Operation) error {
	if err := e.kernel.execute(o); err != nil {
		return &OperationError{Operation: o, Err: err}
	}
	s.has.note(o)
	r.Operations = append(r.Operations, o)
	return nil
}
