package ipvsctl

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Engine keeps virtual servers equal to the wanted ones. Set and Delete collect changes, Add and Remove pass them to
// the kernel, and Tick ends drains. Only one goroutine at a time may use it.
type Engine struct {
	link
	registry
	locals  locals
	options Options
	drains  []*managed // with draining real servers
}

// Open connects to the kernel and takes over what an earlier process left there. It changes nothing. When the kernel
// has no IPVS the error is ErrNoIPVS.
func Open(o Options) (*Engine, error) {
	c, err := dial(o.NetNS)
	if err != nil {
		return nil, err
	}
	e, err := openEngine(o, c)
	if err != nil {
		_ = c.Close() // the first error is the one to report
		return nil, err
	}
	return e, nil
}

// New returns an engine over a kernel that need not be that of this host. It takes over what the kernel has.
func New(o Options, k Kernel) (*Engine, error) { return openEngine(o, conn{k}) }

func openEngine(o Options, k kernel) (*Engine, error) {
	e := &Engine{
		link: link{kernel: k}, registry: registry{servers: map[Key]*managed{}, names: map[string][]Key{}}, options: o,
		locals: locals{
			servers: map[netip.Addr]int{}, unsure: map[netip.Addr]bool{}, inherited: map[netip.Addr]bool{}, guarded: map[netip.Addr]bool{},
		},
	}
	if err := e.takeOver(); err != nil {
		return nil, err
	}
	return e, nil
}

// Close closes the socket. The virtual servers stay.
func (e *Engine) Close() { _ = e.kernel.Close() } // a socket that cannot be closed ends with the process

// Empty reports whether the engine has nothing in the kernel and wants nothing there.
func (e *Engine) Empty() bool { return len(e.servers) == 0 && len(e.locals.inherited) == 0 }

// Set replaces the virtual servers that a service port wants. The engine does not interpret the name. A key that
// another service port has goes over to this one. On error nothing changes. The engine keeps the values: do not
// modify them later.
func (e *Engine) Set(name string, servers []VirtualServer) error {
	wanted, err := e.options.prepare(servers)
	if err != nil {
		return fmt.Errorf("service port %s: %w", name, err)
	}
	e.set(name, wanted)
	return nil
}

// takeOver reads everything that has the mark of this package. That includes excluded ranges: the range may not have
// been excluded when an earlier process made the virtual server, and no other tool would remove it. Nothing of it
// changes until Set claims it or the first Remove gives it up.
func (e *Engine) takeOver() error {
	addrs, err := e.kernel.ListAddresses()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		e.locals.inherited[a] = true
	}
	servers, err := e.kernel.Servers()
	if err != nil {
		return err
	}
	for _, f := range servers {
		if !f.Ours {
			continue
		}
		reals, err := e.kernel.Reals(f.Key)
		if err != nil {
			return &KeyError{Key: f.Key, Err: err}
		}
		s := e.server(f.Key)
		s.has = newApplied(f, reals)
		e.locals.inherit(s)
	}
	return nil
}

// Coming lists the addresses that need a guard before the next Add: those that Add makes local, and, until the first
// Remove, those that an earlier process left.
func (e *Engine) Coming() []netip.Addr { return e.locals.coming(e.dirty) }

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
		if e.servers[servers[i].Key].reschedules(&servers[i]) {
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
	f, exists, err := e.kernel.Server(k)
	if err == nil && exists && !f.Ours {
		err = ErrForeign
	}
	return err
}

// registry knows which service port wants which virtual server, and on which of them there is work.
type registry struct {
	servers map[Key]*managed
	names   map[string][]Key
	dirty   []*managed // work for the next Add or Remove
	compare []*managed // what Intact has not compared in this round; the last one is next
}

// nextToCompare returns a virtual server that is not about to change; nil: there is none left in this round.
func (r *registry) nextToCompare() *managed {
	if len(r.compare) == 0 {
		byKey := func(a, b *managed) int { return a.key.Compare(b.key) } // each round alike
		r.compare = slices.SortedFunc(maps.Values(r.servers), byKey)
	}
	for len(r.compare) > 0 {
		s := r.compare[len(r.compare)-1]
		r.compare = r.compare[:len(r.compare)-1]
		if r.servers[s.key] == s && s.want != nil && !s.dirty {
			return s
		}
	}
	return nil
}

// distrust makes the engine read every virtual server again before it works on it. Add works on all wanted ones.
func (r *registry) distrust() {
	for _, s := range r.servers {
		s.stale = true
		if s.want != nil {
			r.markDirty(s)
		}
	}
}

// set replaces what a service port wants.
func (r *registry) set(name string, wanted []*VirtualServer) {
	keys := make([]Key, len(wanted))
	for i, v := range wanted {
		keys[i] = v.Key
		s := r.server(v.Key)
		s.owner, s.want = name, v
		r.markDirty(s)
	}
	for _, k := range r.names[name] {
		if !slices.Contains(keys, k) {
			r.giveUp(name, k)
		}
	}
	r.names[name] = keys
}

// Delete gives up the virtual servers of a service port. It does nothing when the name is unknown.
func (r *registry) Delete(name string) {
	for _, k := range r.names[name] {
		r.giveUp(name, k)
	}
	delete(r.names, name)
}

func (r *registry) server(k Key) *managed {
	s := r.servers[k]
	if s == nil {
		s = &managed{key: k}
		r.servers[k] = s
	}
	return s
}

// giveUp ends a service port's claim to a key, unless another service port has the key by now.
func (r *registry) giveUp(name string, k Key) {
	if s := r.servers[k]; s != nil && s.owner == name {
		s.owner, s.former, s.want, s.failed = "", name, nil, false
		r.markDirty(s)
	}
}

func (r *registry) markDirty(s *managed) {
	if !s.dirty {
		s.dirty = true
		r.dirty = append(r.dirty, s)
	}
}
