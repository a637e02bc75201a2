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
	servers   map[netip.Addr]int  // for how many virtual servers an address is local
	unsure    map[netip.Addr]bool // may be local, after an error
	inherited map[netip.Addr]bool // local because of an earlier process; from the first Remove on they are taken back
	guarded   map[netip.Addr]bool // named by Coming or no longer local, since the last result
	settled   bool                // there was a Remove
}

// coming lists what Coming does, and notes it for released.
func (l *locals) coming(dirty []*managed) []netip.Addr {
	coming := map[netip.Addr]bool{}
	if !l.settled {
		coming = l.all()
	}
	for _, s := range dirty {
		addr := s.key.Addr
		if s.want != nil && s.want.Local && !s.local && l.servers[addr] == 0 && (!l.inherited[addr] || l.unsure[addr]) {
			coming[addr] = true
		}
	}
	maps.Copy(l.guarded, coming)
	return slices.SortedFunc(maps.Keys(coming), netip.Addr.Compare)
}

// inherit notes that a virtual server of an earlier process needs its address, if that is local.
func (l *locals) inherit(s *managed) {
	if l.inherited[s.key.Addr] {
		s.local = true
		l.servers[s.key.Addr]++
	}
}

// all returns the addresses that the engine or an earlier process made local, and those that may be local after an
// error.
func (l *locals) all() map[netip.Addr]bool {
	all := maps.Clone(l.inherited)
	for addr := range l.servers {
		all[addr] = true
	}
	maps.Copy(all, l.unsure)
	return all
}

// released lists the addresses that need no guard any more.
func (l *locals) released() []netip.Addr {
	if len(l.guarded) == 0 {
		return nil // nearly every pass
	}
	list := slices.SortedFunc(maps.Keys(l.guarded), netip.Addr.Compare)
	l.guarded = map[netip.Addr]bool{}
	return slices.DeleteFunc(list, func(addr netip.Addr) bool { return l.servers[addr] > 0 || l.inherited[addr] || l.unsure[addr] })
}

// doer executes an operation on the address of a virtual server.
type doer func(*managed, OperationKind) error

// acquire makes the address of a virtual server local, unless it is local for another virtual server.
func (l *locals) acquire(do doer, s *managed) error {
	addr := s.key.Addr
	if s.local {
		return nil
	}
	if l.servers[addr] == 0 && !l.inherited[addr] || l.unsure[addr] {
		l.unsure[addr] = true // the kernel may take the operation and still return an error
		if err := do(s, AddAddress); err != nil {
			return err
		}
		delete(l.unsure, addr)
	}
	s.local = true
	l.servers[addr]++
	return nil
}

// release undoes acquire.
func (l *locals) release(do doer, s *managed) error {
	addr, others := s.key.Addr, l.servers[s.key.Addr]
	if s.local {
		others--
	}
	if others == 0 && (s.local || l.unsure[addr]) {
		l.unsure[addr] = true
		if err := do(s, DeleteAddress); err != nil {
			return err
		}
		delete(l.unsure, addr)
		delete(l.servers, addr)
		delete(l.inherited, addr)
		l.guarded[addr] = true
	} else if s.local {
		l.servers[addr]--
	}
	s.local = false
	return nil
}

// orphans lists the inherited addresses that no virtual server needs.
func (l *locals) orphans() []netip.Addr {
	maps.DeleteFunc(l.inherited, func(addr netip.Addr, _ bool) bool { return l.servers[addr] > 0 })
	return slices.SortedFunc(maps.Keys(l.inherited), netip.Addr.Compare)
}
