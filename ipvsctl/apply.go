package ipvsctl

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"
)

// Result tells what was done.
type Result struct {
	Operations Operations // that the kernel took, in this order
	Failures   []Failure
	Kernel     time.Duration // spent in system calls that change something
}

// Failure is a virtual server that could not be brought to where it should be. It stays as it is, and is read back and
// tried again with the next Add, Remove or Tick; the others are not affected.
type Failure struct {
	Name string // the service port; "" for what is being removed
	Key  Key
	Err  error
}

// OperationError tells which operation the kernel refused.
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
	return r, r.error()
}

// Remove gives up the virtual servers that are no longer wanted. It belongs after the nft transaction of a pass, when
// nothing leads to them any more.
func (e *Engine) Remove(now time.Time) (Result, error) {
	var r Result
	e.dropOrphans(&r) // first: what is still counted as in use is none
	e.sweep(&r, now, func(s *server) bool { return s.want == nil })
	return r, r.error()
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
		s.dirty = false
		if err := e.converge(r, s); err != nil {
			e.fail(r, s, err)
		}
		e.follow(s, now)
	}
}

func (e *Engine) fail(r *Result, s *server, err error) {
	r.Failures = append(r.Failures, Failure{Name: s.owner, Key: s.key, Err: err})
	s.suspect = true
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
		return fmt.Errorf("virtual server %s: %w", s.key, err)
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
	start := time.Now()
	err := e.kernel.execute(o)
	r.Kernel += time.Since(start)
	if err != nil {
		return &OperationError{o, err}
	}
	s.has.note(o)
	r.Operations = append(r.Operations, o)
	return nil
}

// acquire makes the address of a virtual server local, unless another one has done so.
func (e *Engine) acquire(r *Result, s *server) error {
	addr := s.key.Addr
	if s.local {
		return nil
	}
	if e.locals[addr] == 0 && !e.inherited[addr] || e.unsure[addr] {
		e.unsure[addr] = true // after an error the kernel may have it all the same
		if err := e.do(r, s, Operation{Kind: AddAddress, Server: s.value()}); err != nil {
			return err
		}
		delete(e.unsure, addr)
	}
	s.local = true
	e.locals[addr]++
	return nil
}

// release is the opposite.
func (e *Engine) release(r *Result, s *server) error {
	addr, others := s.key.Addr, e.locals[s.key.Addr]
	if s.local {
		others--
	}
	if others == 0 && (s.local || e.unsure[addr]) {
		e.unsure[addr] = true
		if err := e.do(r, s, Operation{Kind: DeleteAddress, Server: s.value()}); err != nil {
			return err
		}
		delete(e.unsure, addr)
		delete(e.locals, addr)
	} else if s.local {
		e.locals[addr]--
	}
	s.local = false
	return nil
}

// dropOrphans takes back addresses that an earlier process made local and that nobody needs.
func (e *Engine) dropOrphans(r *Result) {
	orphans := e.orphans
	e.orphans = nil
	for _, addr := range orphans {
		if e.locals[addr] > 0 {
			continue
		}
		s := &server{key: Key{Addr: addr}}
		if err := e.do(r, s, Operation{Kind: DeleteAddress, Server: s.value()}); err != nil {
			r.Failures = append(r.Failures, Failure{Key: s.key, Err: err})
			e.orphans = append(e.orphans, addr)
		}
	}
}

// Pending lists what Add and Remove are going to do, as far as it can be told without asking the kernel.
func (e *Engine) Pending() Operations {
	var list Operations
	local := map[netip.Addr]bool{}
	for _, s := range e.dirty {
		ops := e.plan(s)
		keeps := s.want != nil && s.want.Local
		deleted := len(ops) == 1 && ops[0].Kind == DeleteServer
		addr := s.key.Addr
		if s.local && !keeps && (s.want != nil || deleted) && e.locals[addr] == 1 {
			list = append(list, Operation{Kind: DeleteAddress, Server: s.value()})
		}
		list = append(list, ops...)
		if keeps && !s.local && e.locals[addr] == 0 && !local[addr] {
			local[addr] = true
			list = append(list, Operation{Kind: AddAddress, Server: s.want})
		}
	}
	return list
}
