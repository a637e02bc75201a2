package ipvsctl

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"
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
}

// Engine keeps virtual servers equal to the wanted ones. Set and Delete collect changes, Add and Remove pass them to
// the kernel, and Tick ends drains. Only one goroutine at a time may use it.
type Engine struct {
	kernel  kernel
	dial    func() (kernel, error) // opens another one when the sockets are lost; nil: there is none
	taken   []kernel               // had sockets whose file descriptors belong to others by now
	options Options
	servers map[Key]*server
	names   map[string][]Key
	dirty   []*server // work for the next Add or Remove
	drains  []*server // with draining real servers
	settled bool      // there was a Remove

	locals    map[netip.Addr]int  // for how many virtual servers an address is local
	unsure    map[netip.Addr]bool // may be local, after an error
	inherited map[netip.Addr]bool // local because of an earlier process, until the first Remove
	orphans   []netip.Addr        // inherited addresses that Remove and Tick have to take back
	named     map[netip.Addr]bool // by Coming, since the last Add
}

// kernel is what the engine needs of a kernel. conn is the real one, memoryKernel the one in memory. Tests inject
// faults here.
type kernel interface {
	execute(Operation) error
	servers() ([]found, error)
	server(Key) (found, bool, error)
	reals(Key) ([]foundReal, error)
	listAddresses() ([]netip.Addr, error)
	isLocal(netip.Addr) (bool, error)
	mark(k Key, bits uint32) error
	timeouts() (Timeouts, error)
	setTimeouts(Timeouts) error
	close()
}

// server is one virtual server: what is wanted beside what is applied.
type server struct {
	key    Key
	owner  string         // service port; "" when no service port wants it
	former string         // the service port that gave it up
	want   *VirtualServer // nil: it has to go
	has    applied
	local  bool // counted in Engine.locals
	dirty  bool // in Engine.dirty
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
		c.close()
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
	return &Engine{
		kernel: k, options: o, servers: map[Key]*server{}, names: map[string][]Key{}, locals: map[netip.Addr]int{},
		unsure: map[netip.Addr]bool{}, inherited: map[netip.Addr]bool{}, named: map[netip.Addr]bool{},
	}
}

// Close closes the socket. The virtual servers stay.
func (e *Engine) Close() { e.kernel.close() }

// Empty reports whether the engine has nothing in the kernel and wants nothing there.
func (e *Engine) Empty() bool { return len(e.servers) == 0 && len(e.inherited) == 0 }

// Cleanup removes everything that has the mark of this package, and cuts its connections. It returns the number of
// operations.
func Cleanup(o Options) (int, error) {
	o.GracefulPeriod = 0
	e, err := Open(o)
	if err != nil {
		return 0, err
	}
	defer e.Close()
	r, err := e.Remove(time.Now())
	return len(r.Operations), err
}

// excludes reports whether an address belongs to other users of IPVS.
func (o *Options) excludes(addr netip.Addr) bool {
	return slices.ContainsFunc(o.Exclude, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Set replaces the virtual servers that a service port wants. The engine does not interpret the name. A key that
// another service port has goes over to this one. On error nothing changes. The engine keeps the values: do not
// modify them later.
func (e *Engine) Set(name string, servers []VirtualServer) error {
	wanted, err := e.prepare(servers)
	if err != nil {
		return fmt.Errorf("service port %s: %w", name, err)
	}
	keys := make([]Key, len(wanted))
	for i, v := range wanted {
		keys[i] = v.Key
		s := e.server(v.Key)
		s.owner, s.want = name, v
		e.markDirty(s)
	}
	for _, k := range e.names[name] {
		if !slices.Contains(keys, k) {
			e.giveUp(name, k)
		}
	}
	e.names[name] = keys
	return nil
}

// Delete gives up the virtual servers of a service port. It does nothing when the name is unknown.
func (e *Engine) Delete(name string) {
	for _, k := range e.names[name] {
		e.giveUp(name, k)
	}
	delete(e.names, name)
}

// prepare validates the values and returns copies with sorted real servers.
func (e *Engine) prepare(servers []VirtualServer) ([]*VirtualServer, error) {
	wanted := make([]*VirtualServer, len(servers))
	for i := range servers {
		v := servers[i]
		v.RealServers = v.usable()
		if err := v.validate(); err != nil {
			return nil, err
		}
		if e.options.excludes(v.Addr) {
			return nil, &KeyError{Key: v.Key, Err: ErrExcluded}
		}
		if slices.ContainsFunc(wanted[:i], func(o *VirtualServer) bool { return o.Key == v.Key }) {
			return nil, fmt.Errorf("virtual server %s is given twice", v.Key)
		}
		wanted[i] = &v
	}
	return wanted, nil
}

func (e *Engine) server(k Key) *server {
	s := e.servers[k]
	if s == nil {
		s = &server{key: k}
		e.servers[k] = s
	}
	return s
}

// giveUp ends a service port's claim to a key, unless another service port has the key by now.
func (e *Engine) giveUp(name string, k Key) {
	if s := e.servers[k]; s != nil && s.owner == name {
		s.owner, s.former, s.want, s.failed = "", name, nil, false
		e.markDirty(s)
	}
}

func (e *Engine) markDirty(s *server) {
	if !s.dirty {
		s.dirty = true
		e.dirty = append(e.dirty, s)
	}
}

// takeOver reads everything that has the mark of this package. That includes excluded ranges: the range may not have
// been excluded when an earlier process made the virtual server, and no other tool would remove it. Nothing of it
// changes until Set claims it or the first Remove gives it up.
func (e *Engine) takeOver() error {
	addrs, err := e.kernel.listAddresses()
	if err != nil {
		return err
	}
	for _, a := range addrs {
		e.inherited[a] = true
	}
	servers, err := e.kernel.servers()
	if err != nil {
		return err
	}
	for _, f := range servers {
		if !f.ours {
			continue
		}
		reals, err := e.kernel.reals(f.key)
		if err != nil {
			return &KeyError{Key: f.key, Err: err}
		}
		s := e.server(f.key)
		s.has = newApplied(f, reals)
		if e.inherited[f.key.Addr] {
			s.local = true
			e.locals[f.key.Addr]++
		}
	}
	return nil
}

// settle gives up what an earlier process left and no Set has claimed.
func (e *Engine) settle() {
	e.settled = true
	for _, s := range e.servers {
		if s.want == nil {
			e.markDirty(s)
		}
	}
	e.orphans = slices.SortedFunc(maps.Keys(e.inherited), netip.Addr.Compare)
	e.inherited = map[netip.Addr]bool{}
}

// Intact compares three virtual servers, chosen at random, with what the kernel has. It returns false when one differs,
// for example because someone ran "ipvsadm -C". If repair is true, the next Add then reads every virtual server and
// repairs it.
func (e *Engine) Intact(repair bool) (bool, error) {
	remaining := 3
	for _, s := range e.servers { // in random order
		if s.want == nil || s.dirty {
			continue
		}
		same, err := e.intact(s)
		if err != nil {
			if lost(err) {
				e.reopen(err)
			}
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

func (e *Engine) intact(s *server) (bool, error) {
	now, err := e.read(s.key)
	if errors.Is(err, ErrForeign) {
		return false, nil
	}
	if err != nil || !now.equal(&s.has) || !s.local {
		return err == nil && now.equal(&s.has), err
	}
	return e.kernel.isLocal(s.key.Addr)
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

// read returns what the kernel has of a virtual server. The error is a *KeyError. It wraps ErrForeign when another tool
// made the virtual server.
func (e *Engine) read(k Key) (applied, error) {
	f, exists, err := e.kernel.server(k)
	switch {
	case err != nil:
		return applied{}, &KeyError{Key: k, Err: err}
	case !exists:
		return applied{}, nil
	case !f.ours:
		return applied{}, &KeyError{Key: k, Err: ErrForeign}
	}
	reals, err := e.kernel.reals(k)
	if err != nil {
		return applied{}, &KeyError{Key: k, Err: err}
	}
	return newApplied(f, reals), nil
}

func newApplied(f found, reals []foundReal) applied {
	has := applied{exists: true, header: f.header, adopted: f.adopted, reals: make([]RealServer, len(reals))}
	for i, r := range reals {
		has.reals[i] = r.RealServer
	}
	return has
}

// ours reports whether the kernel's virtual server with this key has the mark. The engine asks before it deletes a
// virtual server or ends a drain, because the kernel deletes by key alone: after an "ipvsadm -C" another tool may
// have the key.
func (e *Engine) ours(k Key) (bool, error) {
	f, exists, err := e.kernel.server(k)
	if err != nil {
		return false, &KeyError{Key: k, Err: err}
	}
	return exists && f.ours, nil
}
