package ipvsctl

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// What the caller has to know beforehand: which keys it cannot have, and which addresses become local or stop being so,
// because a local address exposes whatever listens on all addresses of the host and needs a guard (k/k #72236).

// Foreign says whether another tool has a virtual server with this key. The kernel is asked only about keys that the
// engine does not have.
func (e *Engine) Foreign(k Key) (bool, error) {
	if s := e.servers[k]; s != nil && s.has.exists {
		return false, nil
	}
	f, exists, err := e.kernel.server(k)
	return exists && !f.ours, err
}

// Reschedules says whether Set would change the scheduler of a virtual server that takes new connections. The kernel has
// none while it changes them (ip_vs_edit_service takes the old one away, waits for all users, and then binds the new one),
// and refuses connections for some 10 ms. Where something else can serve meanwhile, Delete first, and Set later.
func (e *Engine) Reschedules(servers []VirtualServer) bool {
	return slices.ContainsFunc(servers, func(v VirtualServer) bool {
		s := e.servers[v.Key]
		return s != nil && s.has.exists && s.has.header.scheduler != v.Scheduler &&
			slices.ContainsFunc(s.has.reals, func(r RealServer) bool { return r.Weight > 0 })
	})
}

// Coming lists the addresses that the next Add makes local.
func (e *Engine) Coming() []netip.Addr {
	coming := map[netip.Addr]bool{}
	for _, s := range e.dirty {
		addr := s.key.Addr
		if s.want != nil && s.want.Local && !s.local && e.locals[addr] == 0 && !e.inherited[addr] {
			coming[addr] = true
		}
	}
	return slices.SortedFunc(maps.Keys(coming), netip.Addr.Compare)
}

// Local lists the addresses that are local because of us, or may be so.
func (e *Engine) Local() []netip.Addr {
	local := maps.Clone(e.inherited)
	for addr := range e.locals {
		local[addr] = true
	}
	for addr := range e.unsure {
		local[addr] = true
	}
	for _, addr := range e.orphans {
		local[addr] = true
	}
	return slices.SortedFunc(maps.Keys(local), netip.Addr.Compare)
}

// Released lists the addresses that have stopped being local.
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
	return out
}

// Idle says that there is nothing to wait for: no change that failed, no real server that drains.
func (e *Engine) Idle() bool { return len(e.dirty) == 0 && len(e.drains) == 0 && len(e.orphans) == 0 }

// Empty says that nothing in the kernel is ours.
func (e *Engine) Empty() bool { return len(e.servers) == 0 && len(e.inherited) == 0 }

// Cleanup removes everything of ours, connections or not, and counts what it removed.
func Cleanup(o Options) (int, error) {
	o.GracefulPeriod = 0
	e, err := Open(o)
	if err != nil {
		return 0, err
	}
	defer e.Close()
	e.Settle()
	r, err := e.Remove(time.Now())
	return len(r.Operations), err
}
