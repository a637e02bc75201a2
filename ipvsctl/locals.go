package ipvsctl

import (
	"maps"
	"net/netip"
	"slices"
)

// A local address exposes every process that listens on all addresses of the host (k/k #72236). The caller guards such
// addresses with nft. So it must know which addresses become local before they do, and which ones no longer are.

// locals knows which addresses are local.
type locals struct {
	link      *link
	servers   map[netip.Addr]int  // for how many virtual servers an address is local
	unsure    map[netip.Addr]bool // may be local, after an error
	inherited map[netip.Addr]bool // local because of an earlier process, until the first Remove
	orphans   []netip.Addr        // inherited addresses that Remove and Tick have to take back
	named     map[netip.Addr]bool // by Coming, since the last Add
	settled   bool                // there was a Remove
}

func newLocals(l *link) locals {
	return locals{
		link: l, servers: map[netip.Addr]int{}, unsure: map[netip.Addr]bool{}, inherited: map[netip.Addr]bool{}, named: map[netip.Addr]bool{},
	}
}

// Coming lists the addresses that need a guard before the next Add: those that Add makes local, and, until the first
// Remove, those that an earlier process left.
func (e *Engine) Coming() []netip.Addr { return e.locals.coming(e.dirty) }

func (l *locals) coming(dirty []*server) []netip.Addr {
	coming := map[netip.Addr]bool{}
	if !l.settled {
		coming = l.all()
	}
	for _, s := range dirty {
		addr := s.key.Addr
		if s.want != nil && s.want.Local && !s.local && l.servers[addr] == 0 && !l.inherited[addr] {
			coming[addr] = true
		}
	}
	maps.Copy(l.named, coming)
	return slices.SortedFunc(maps.Keys(coming), netip.Addr.Compare)
}

// adopt notes that a virtual server of an earlier process needs its address, if that is local.
func (l *locals) adopt(s *server) {
	if l.inherited[s.key.Addr] {
		s.local = true
		l.servers[s.key.Addr]++
	}
}

// settle has the addresses taken back that an earlier process left and that no virtual server needs.
func (l *locals) settle() {
	l.settled = true
	l.orphans = slices.SortedFunc(maps.Keys(l.inherited), netip.Addr.Compare)
	l.inherited = map[netip.Addr]bool{}
}

// all returns the addresses that the engine or an earlier process made local, and those that may be local after an
// error.
func (l *locals) all() map[netip.Addr]bool {
	all := maps.Clone(l.inherited)
	for addr := range l.servers {
		all[addr] = true
	}
	maps.Copy(all, l.unsure)
	for _, addr := range l.orphans {
		all[addr] = true
	}
	return all
}

// notLocal lists the addresses that Coming named since the last call and that are not local.
func (l *locals) notLocal() []netip.Addr {
	if len(l.named) == 0 {
		return nil // nearly every pass
	}
	named := l.named
	l.named = map[netip.Addr]bool{}
	maps.DeleteFunc(named, func(addr netip.Addr, _ bool) bool { return l.mayBeLocal(addr) })
	return slices.SortedFunc(maps.Keys(named), netip.Addr.Compare)
}

func (l *locals) mayBeLocal(addr netip.Addr) bool {
	return l.servers[addr] > 0 || l.inherited[addr] || l.unsure[addr] || slices.Contains(l.orphans, addr)
}

// acquire makes the address of a virtual server local, unless it is local for another virtual server.
func (l *locals) acquire(r *Result, s *server) error {
	addr := s.key.Addr
	if s.local {
		return nil
	}
	if l.servers[addr] == 0 && !l.inherited[addr] || l.unsure[addr] {
		l.unsure[addr] = true // the kernel may take the operation and still return an error
		if err := l.link.do(r, s, Operation{Kind: AddAddress, Server: s.value()}); err != nil {
			return err
		}
		delete(l.unsure, addr)
	}
	s.local = true
	l.servers[addr]++
	return nil
}

// release undoes acquire.
func (l *locals) release(r *Result, s *server) error {
	addr, others := s.key.Addr, l.servers[s.key.Addr]
	if s.local {
		others--
	}
	if others == 0 && (s.local || l.unsure[addr]) {
		l.unsure[addr] = true
		if err := l.link.do(r, s, Operation{Kind: DeleteAddress, Server: s.value()}); err != nil {
			return err
		}
		delete(l.unsure, addr)
		delete(l.servers, addr)
		delete(l.inherited, addr)
	} else if s.local {
		l.servers[addr]--
	}
	s.local = false
	return nil
}

// dropOrphans deletes the routes that an earlier process left and that no virtual server needs.
func (l *locals) dropOrphans(r *Result) {
	orphans := l.orphans
	l.orphans = nil
	for _, addr := range orphans {
		if l.servers[addr] > 0 {
			continue
		}
		s := &server{key: Key{Addr: addr}}
		if err := l.link.do(r, s, Operation{Kind: DeleteAddress, Server: s.value()}); err != nil {
			r.Failures = append(r.Failures, Failure{Key: s.key, Err: err})
			l.orphans = append(l.orphans, addr)
		}
	}
}
