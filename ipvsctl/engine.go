package ipvsctl

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// Options configure an engine.
type Options struct {
	// NetNS is a file descriptor of the network namespace to work in. 0 means the current one. It must stay open as long
	// as the engine is used.
	NetNS int
	// Exclude lists address ranges that belong to other users of IPVS. The engine makes nothing there. It still takes
	// over what an earlier process left there, so that the addresses keep their guards until they are no longer
	// local.
	Exclude []netip.Prefix
	// GracefulPeriod is how long a real server that is no longer wanted may keep its connections. 0 means not at all.
	GracefulPeriod time.Duration
	// Sync are the synchronization daemons that run. Those that an earlier process started and that are not among them end.
	Sync []wire.Daemon
}

// Engine keeps virtual servers equal to the wanted ones. Set and Delete collect changes, Add and Remove pass them to
// the kernel, and Tick ends drains. Only one goroutine at a time may use it.
type Engine struct {
	*link
	registry
	locals  locals
	options Options
	drains  []*server // with draining real servers
}

// server is one virtual server: what is wanted beside what is applied.
type server struct {
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
	e.dial = func() (kernel, error) { return dial(o.NetNS) }
	return e, nil
}

func openEngine(o Options, k kernel) (*Engine, error) {
	e := newEngine(o, k)
	if err := e.takeOver(); err != nil {
		return nil, err
	}
	return e, nil
}

// newEngine returns an engine on a kernel that has nothing of an earlier process.
func newEngine(o Options, k kernel) *Engine {
	l := &link{kernel: k}
	return &Engine{
		link: l, registry: registry{servers: map[Key]*server{}, names: map[string][]Key{}}, locals: newLocals(l), options: o,
	}
}

// Close closes the socket. The virtual servers stay.
func (e *Engine) Close() { _ = e.kernel.Close() } // a socket that cannot be closed ends with the process

// Empty reports whether the engine has nothing in the kernel and wants nothing there.
func (e *Engine) Empty() bool { return len(e.servers) == 0 && len(e.locals.inherited) == 0 }

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

// excludes reports whether an address belongs to other users of IPVS.
func (o *Options) excludes(addr netip.Addr) bool {
	return slices.ContainsFunc(o.Exclude, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func (o *Options) graceful() bool { return o.GracefulPeriod > 0 }

// prepare validates the values and returns copies with sorted real servers.
func (o *Options) prepare(servers []VirtualServer) ([]*VirtualServer, error) {
	wanted := make([]*VirtualServer, len(servers))
	for i := range servers {
		v := servers[i]
		v.RealServers = v.usable()
		if err := v.validate(); err != nil {
			return nil, err
		}
		if o.excludes(v.Addr) {
			return nil, &KeyError{Key: v.Key, Err: ErrExcluded}
		}
		if slices.ContainsFunc(wanted[:i], func(w *VirtualServer) bool { return w.Key == v.Key }) {
			return nil, fmt.Errorf("virtual server %s is given twice", v.Key)
		}
		wanted[i] = &v
	}
	return wanted, nil
}

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

// Delete gives up the virtual servers of a service port. It does nothing when the name is unknown.
func (e *Engine) Delete(name string) { e.delete(name) }

// takeOver reads everything that has the mark of this package. That includes excluded ranges: the range may not have
// been excluded when an earlier process made the virtual server, and no other tool would remove it. Nothing of it
// changes until Set claims it or the first Remove gives it up.
func (e *Engine) takeOver() error {
	addrs, err := e.listAddresses()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		e.locals.inherited[a] = true
	}
	servers, err := e.kernel.servers()
	if err != nil {
		return err
	}
	for _, f := range servers {
		if !f.ours {
			continue
		}
		reals, err := e.reals(f.key)
		if err != nil {
			return &KeyError{Key: f.key, Err: err}
		}
		s := e.server(f.key)
		s.has = newApplied(f, reals)
		e.locals.adopt(s)
	}
	return nil
}

// settle gives up what an earlier process left and no Set has claimed.
func (e *Engine) settle() {
	for _, s := range e.servers {
		if s.want == nil {
			e.markDirty(s)
		}
	}
	e.locals.settle()
}

// Intact compares three virtual servers, chosen at random, with what the kernel has. It returns false when one differs,
// for example because someone ran "ipvsadm -C", or when a synchronization daemon differs. If repair is true, the next Add then
// reads every virtual server and repairs it. A daemon is put right at once.
func (e *Engine) Intact(repair bool) (bool, error) {
	daemons, daemonErr := e.daemonsIntact(repair)
	servers, err := e.serversIntact(repair)
	return daemons && servers, errors.Join(daemonErr, err)
}

func (e *Engine) serversIntact(repair bool) (bool, error) {
	remaining := 3
	for _, s := range e.servers { // in random order
		if s.want == nil || s.dirty {
			continue
		}
		same, err := e.intact(s)
		if err != nil {
			e.reopen(err)
			return false, err
		}
		if !same && repair {
			e.distrust()
		}
		if !same {
			return false, nil
		}
		if remaining--; remaining == 0 {
			break
		}
	}
	return true, nil
}

// distrust makes the engine read every virtual server again before it works on it. Add works on all wanted ones.
func (e *Engine) distrust() {
	for _, s := range e.servers {
		s.stale = true
		if s.want != nil {
			e.markDirty(s)
		}
	}
}

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
	f, exists, err := e.kernel.server(k)
	if err == nil && exists && !f.ours {
		err = ErrForeign
	}
	return err
}

// reschedules reports whether a virtual server takes connections with another scheduler. s may be nil.
func (s *server) reschedules(v *VirtualServer) bool {
	return s != nil && s.has.exists && s.has.header.scheduler != v.Scheduler &&
		slices.ContainsFunc(s.has.reals, func(r RealServer) bool { return r.Weight > 0 })
}

// registry knows which service port wants which virtual server, and on which of them there is work.
type registry struct {
	servers map[Key]*server
	names   map[string][]Key
	dirty   []*server // work for the next Add or Remove
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

// delete forgets a service port.
func (r *registry) delete(name string) {
	for _, k := range r.names[name] {
		r.giveUp(name, k)
	}
	delete(r.names, name)
}

func (r *registry) server(k Key) *server {
	s := r.servers[k]
	if s == nil {
		s = &server{key: k}
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

func (r *registry) markDirty(s *server) {
	if !s.dirty {
		s.dirty = true
		r.dirty = append(r.dirty, s)
	}
}
