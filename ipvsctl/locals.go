package ipvsctl

import (
	"maps"
	"net/netip"
	"slices"
)

// A local address exposes every process that listens on all addresses of the host (k/k #72236). The caller guards such
// addresses with nft. So it must know which addresses become local before they do, and which ones no longer are.

// Coming lists the addresses that need a guard before the next Add: those that Add makes local, and, until the first
// Remove, those that an earlier process left.
func (e *Engine) Coming() []netip.Addr {
	coming := map[netip.Addr]bool{}
	if !e.settled {
		coming = e.local()
	}
	for _, s := range e.dirty {
		addr := s.key.Addr
		if s.want != nil && s.want.Local && !s.local && e.locals[addr] == 0 && !e.inherited[addr] {
			coming[addr] = true
		}
	}
	maps.Copy(e.named, coming)
	return slices.SortedFunc(maps.Keys(coming), netip.Addr.Compare)
}

// local returns the addresses that the engine or an earlier process made local, and those that may be local after an
// error.
func (e *Engine) local() map[netip.Addr]bool {
	local := maps.Clone(e.inherited)
	for addr := range e.locals {
		local[addr] = true
	}
	maps.Copy(local, e.unsure)
	for _, addr := range e.orphans {
		local[addr] = true
	}
	return local
}

// notLocal lists the addresses that Coming named since the last call and that are not local.
func (e *Engine) notLocal() []netip.Addr {
	if len(e.named) == 0 {
		return nil // nearly every pass
	}
	named := e.named
	e.named = map[netip.Addr]bool{}
	maps.DeleteFunc(named, func(addr netip.Addr, _ bool) bool { return e.mayBeLocal(addr) })
	return slices.SortedFunc(maps.Keys(named), netip.Addr.Compare)
}

func (e *Engine) mayBeLocal(addr netip.Addr) bool {
	return e.locals[addr] > 0 || e.inherited[addr] || e.unsure[addr] || slices.Contains(e.orphans, addr)
}

// acquire makes the address of a virtual server local, unless it is local for another virtual server.
func (e *Engine) acquire(r *Result, s *server) error {
	addr := s.key.Addr
	if s.local {
		return nil
	}
	if e.locals[addr] == 0 && !e.inherited[addr] || e.unsure[addr] {
		e.unsure[addr] = true // the kernel may take the operation and still return an error
		if err := e.do(r, s, Operation{Kind: AddAddress, Server: s.value()}); err != nil {
			return err
		}
		delete(e.unsure, addr)
	}
	s.local = true
	e.locals[addr]++
	return nil
}

// release undoes acquire.
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
		delete(e.inherited, addr)
	} else if s.local {
		e.locals[addr]--
	}
	s.local = false
	return nil
}

// dropOrphans deletes the routes that an earlier process left and that no virtual server needs.
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
