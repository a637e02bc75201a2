package ipvsctl

import (
	"errors"
	"slices"
)

// Why IPVS cannot serve a virtual server now.
var (
	// ErrExcluded means that the address is in a range of Options.Exclude.
	ErrExcluded = errors.New("the address is in an excluded range")
	// ErrForeign means that another tool made the virtual server with this key. The engine leaves it alone.
	ErrForeign = errors.New("another tool has made this virtual server")
	// ErrReschedules means that Set would change the scheduler of a virtual server that takes new connections. The
	// kernel refuses connections for some 10 ms while it changes the scheduler: ip_vs_edit_service unbinds the old
	// one, waits for all readers, and then binds the new one. To lose no connection, Delete the virtual server, serve
	// its frontend by other means, and Set it again after the next Remove.
	ErrReschedules = errors.New("the kernel would refuse connections while it changes the scheduler")
)

// Obstacle returns why IPVS cannot serve these virtual servers now, or nil. The error is a *KeyError with ErrExcluded,
// ErrForeign, ErrReschedules, or the error of a system call that reads. ErrReschedules is the last to be reported.
// Obstacle changes nothing. It asks the kernel only about keys that the engine does not have.
func (e *Engine) Obstacle(servers []VirtualServer) error {
	for i := range servers {
		if err := e.available(servers[i].Key); err != nil {
			return &KeyError{Key: servers[i].Key, Err: err}
		}
	}
	for i := range servers {
		if e.reschedules(&servers[i]) {
			return &KeyError{Key: servers[i].Key, Err: ErrReschedules}
		}
	}
	return nil
}

// available returns nil when the engine has the key or can have it.
func (e *Engine) available(k Key) error {
	if e.options.excludes(k.Addr) {
		return ErrExcluded
	}
	if s := e.servers[k]; s != nil && s.has.exists {
		return nil
	}
	f, exists, err := e.kernel.server(k)
	if err == nil && exists && !f.ours {
		err = ErrForeign
	}
	return err
}

func (e *Engine) reschedules(v *VirtualServer) bool {
	s := e.servers[v.Key]
	return s != nil && s.has.exists && s.has.header.scheduler != v.Scheduler &&
		slices.ContainsFunc(s.has.reals, func(r RealServer) bool { return r.Weight > 0 })
}
