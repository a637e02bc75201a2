package ipvsctl

import (
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// managed is one virtual server: what is wanted beside what is applied.
type managed struct {
	key    Key
	owner  string         // service port; "" when no service port wants it
	former string         // the service port that gave it up
	want   *VirtualServer // nil: it has to go
	has    applied
	local  bool // counted in locals
	dirty  bool // in registry.dirty
	failed bool // in the last Add, Remove or Tick
	stale  bool // has may be wrong: read the kernel first

	deadlines map[netip.AddrPort]time.Time // of draining real servers
	draining  bool                         // in Engine.drains
	check     time.Time                    // when to look at the connections again
	interval  time.Duration                // between the last two looks
}

// value returns the virtual server for use in operations.
func (s *managed) value() *VirtualServer {
	if s.want != nil {
		return s.want
	}
	return &VirtualServer{Key: s.key, Scheduler: s.has.header.Scheduler}
}

// plan lists the operations for the virtual server, without those for its address.
func (s *managed) plan(graceful bool) Operations {
	if s.want == nil {
		return removals(&s.has, s.value(), graceful)
	}
	return additions(&s.has, s.want, graceful)
}

// reschedules reports whether a virtual server takes connections with another scheduler. s may be nil.
func (s *managed) reschedules(v *VirtualServer) bool {
	return s != nil && s.has.exists && s.has.header.Scheduler != v.Scheduler &&
		slices.ContainsFunc(s.has.reals, func(r RealServer) bool { return r.Weight > 0 })
}

// applied is what the kernel has of one virtual server, as far as the engine knows.
type applied struct {
	exists  bool
	header  wire.Header
	adopted bool         // another Service proxy made it
	reals   []RealServer // sorted by address
}

func newApplied(f wire.Server, reals []RealStatus) applied {
	has := applied{exists: true, header: f.Header, adopted: f.Adopted, reals: make([]RealServer, len(reals))}
	for i, r := range reals {
		has.reals[i] = r.RealServer
	}
	return has
}

// additions lists the operations that turn the kernel's state into the wanted one: first those that add, then those
// that take away. A real server that is no longer wanted drains (weight 0). It is deleted at once when graceful is
// false, when the protocol has no connections, or when the scheduler cannot drain.
func additions(has *applied, want *VirtualServer, graceful bool) Operations {
	var list Operations
	switch {
	case !has.exists:
		list = append(list, Operation{Kind: AddServer, Server: want})
	case has.header != want.header() || has.adopted:
		list = append(list, Operation{Kind: EditServer, Server: want})
	}
	list = appendWanted(list, has.reals, want)
	for _, r := range unwanted(has.reals, want) {
		if o, ok := drainOrDelete(want, r, graceful && canDrain(want.Scheduler)); ok {
			list = append(list, o)
		}
	}
	return list
}

// appendWanted adds missing real servers and changes those that differ. It walks both sorted lists side by side.
func appendWanted(list Operations, has []RealServer, want *VirtualServer) Operations {
	i := 0
	for _, r := range want.RealServers {
		for i < len(has) && has[i].Compare(r) < 0 {
			i++
		}
		switch {
		case i == len(has) || has[i].Addr != r.Addr:
			list = append(list, Operation{Kind: AddReal, Server: want, Real: r})
		case has[i] != r:
			list = append(list, Operation{Kind: EditReal, Server: want, Real: r})
		}
	}
	return list
}

// unwanted lists the real servers that the kernel has and want has not. want may be nil.
func unwanted(has []RealServer, want *VirtualServer) []RealServer {
	if want == nil {
		return has
	}
	var list []RealServer
	i := 0
	for _, r := range has {
		for i < len(want.RealServers) && want.RealServers[i].Compare(r) < 0 {
			i++
		}
		if i == len(want.RealServers) || want.RealServers[i].Addr != r.Addr {
			list = append(list, r)
		}
	}
	return list
}

// drainOrDelete returns the next operation for a real server that is no longer wanted. ok is false when it drains
// already.
func drainOrDelete(v *VirtualServer, r RealServer, graceful bool) (o Operation, ok bool) {
	if !graceful || v.Protocol == UDP {
		return Operation{Kind: DeleteReal, Server: v, Real: r}, true
	}
	return drain(v, r)
}

// drain returns the operation that takes new connections away from a real server. ok is false when it gets none.
func drain(v *VirtualServer, r RealServer) (o Operation, ok bool) {
	if r.Weight == 0 {
		return Operation{}, false
	}
	r.Weight = 0
	return Operation{Kind: EditReal, Server: v, Real: r}, true
}

// canDrain reports whether a scheduler skips real servers of weight 0. The hash table of dh ignores weights: it still
// selects them, and the kernel then refuses every client of the virtual server.
func canDrain(scheduler string) bool { return scheduler != "dh" }

// removals lists the next operations for a virtual server that is no longer wanted. When the kernel deletes a virtual
// server, it deletes the real servers with it.
func removals(has *applied, v *VirtualServer, graceful bool) Operations {
	if !has.exists {
		return nil
	}
	if !graceful || v.Protocol == UDP && !has.adopted || len(has.reals) == 0 {
		return Operations{{Kind: DeleteServer, Server: v}}
	}
	var list Operations
	for _, r := range has.reals {
		if o, ok := drain(v, r); ok {
			list = append(list, o)
		}
	}
	return list
}

// record notes that the kernel took an operation.
func (a *applied) record(o Operation) {
	switch o.Kind {
	case AddServer:
		*a = applied{exists: true, header: o.Server.header()}
	case EditServer:
		a.header, a.adopted = o.Server.header(), false
	case DeleteServer:
		*a = applied{}
	case AddReal, EditReal:
		if i, found := a.find(o.Real.Addr); found {
			a.reals[i] = o.Real
		} else {
			a.reals = slices.Insert(a.reals, i, o.Real)
		}
	case DeleteReal:
		if i, found := a.find(o.Real.Addr); found {
			a.reals = slices.Delete(a.reals, i, i+1)
		}
	}
}

func (a *applied) find(addr netip.AddrPort) (int, bool) {
	return slices.BinarySearchFunc(a.reals, RealServer{Addr: addr}, RealServer.Compare)
}

func (a *applied) equal(o *applied) bool {
	return a.exists == o.exists && a.header == o.header && a.adopted == o.adopted && slices.Equal(a.reals, o.reals)
}
