package ipvsctl

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// Options configure an engine.
type Options struct {
	// NetNS is a file descriptor of the network namespace to work in; 0: the present one.
	NetNS int
	// Exclude are ranges in which IPVS belongs to others: nothing is made there. What an earlier process of ours left there
	// is taken over all the same, so that its addresses stay guarded until it has gone.
	Exclude []netip.Prefix
	// GracefulPeriod is how long a real server that is no longer wanted may keep its connections; 0: not at all.
	GracefulPeriod time.Duration
}

// Engine keeps virtual servers equal to what was asked for. Set and Delete collect changes, Add and Remove hand them to
// the kernel, Tick ends drains. It is used by one goroutine.
type Engine struct {
	kernel  kernel
	options Options
	servers map[Key]*server
	names   map[string][]Key
	dirty   []*server // to be looked at by the next Add or Remove
	drains  []*server // with real servers that drain, or themselves being removed

	locals    map[netip.Addr]int  // how many virtual servers an address is local for
	unsure    map[netip.Addr]bool // may be local, after an error
	inherited map[netip.Addr]bool // local because of an earlier process, until the first Remove
	orphans   []netip.Addr        // inherited ones that Remove and Tick take back
	named     map[netip.Addr]bool // by Coming, since the last Add
	settled   bool                // there was a Remove
}

// kernel is what the engine needs of a kernel: conn is the real one, memoryKernel one in memory. Tests put faults in
// between.
type kernel interface {
	execute(Operation) error
	servers() ([]found, error)
	server(Key) (found, bool, error)
	reals(Key) ([]foundReal, error)
	listAddresses() ([]netip.Addr, error)
	isLocal(netip.Addr) (bool, error)
	timeouts() (Timeouts, error)
	setTimeouts(Timeouts) error
	close()
}

// server is one virtual server: wanted and applied, side by side.
type server struct {
	key     Key
	owner   string         // service port; "" while it is being removed or not yet claimed after a start
	want    *VirtualServer // nil: should not exist
	has     applied
	local   bool // counted in locals
	dirty   bool
	failed  bool // in the last Add or Remove
	suspect bool // what the kernel has is not known for sure: read it first

	deadlines map[netip.AddrPort]time.Time // of real servers that drain
	draining  bool                         // in Engine.drains
	check     time.Time                    // when to look at connections next
	interval  time.Duration
}

// Open connects to the kernel and reads, once, what an earlier process of ours left there. It changes nothing. The error
// is ErrNoIPVS when there is none.
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
	return e, nil
}

func openEngine(o Options, k kernel) (*Engine, error) {
	e := newEngine(o, k)
	if err := e.inherit(); err != nil {
		return nil, err
	}
	return e, nil
}

// newEngine returns an engine on a kernel that has nothing of an earlier process.
func newEngine(o Options, k kernel) *Engine {
	return &Engine{
		kernel: k, options: o, servers: map[Key]*server{}, names: map[string][]Key{},
		locals: map[netip.Addr]int{}, unsure: map[netip.Addr]bool{}, inherited: map[netip.Addr]bool{}, named: map[netip.Addr]bool{},
	}
}

// Close gives the socket back. The virtual servers stay.
func (e *Engine) Close() { e.kernel.close() }

// Empty reports whether the engine has nothing in the kernel and wants nothing there.
func (e *Engine) Empty() bool { return len(e.servers) == 0 && len(e.inherited) == 0 }

// Cleanup removes everything that has our mark, connections or not, and counts the operations.
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

// excludes reports whether virtual servers at an address belong to others.
func (e *Engine) excludes(addr netip.Addr) bool {
	return slices.ContainsFunc(e.options.Exclude, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// Set makes the virtual servers of a service port look as given; name is opaque. On error everything stays as it was.
// A key that another name has is taken from it. The engine keeps the values: they must not be changed afterwards.
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
		e.touch(s)
	}
	for _, k := range e.names[name] {
		if !slices.Contains(keys, k) {
			e.disown(name, k)
		}
	}
	e.names[name] = keys
	return nil
}

// Delete removes the virtual servers of a service port; an unknown one is no change.
func (e *Engine) Delete(name string) {
	for _, k := range e.names[name] {
		e.disown(name, k)
	}
	delete(e.names, name)
}

// prepare checks the values and copies them into the form that the difference needs.
func (e *Engine) prepare(servers []VirtualServer) ([]*VirtualServer, error) {
	wanted := make([]*VirtualServer, len(servers))
	for i := range servers {
		v := servers[i]
		v.RealServers = v.serving()
		if err := v.validate(); err != nil {
			return nil, err
		}
		if e.excludes(v.Addr) {
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

func (e *Engine) disown(name string, k Key) {
	if s := e.servers[k]; s != nil && s.owner == name {
		s.owner, s.want, s.failed = "", nil, false
		e.touch(s)
	}
}

func (e *Engine) touch(s *server) {
	if !s.dirty {
		s.dirty = true
		e.dirty = append(e.dirty, s)
	}
}

// inherit takes over what bears our mark, in excluded ranges too: they may not have been excluded when it was made, and
// nobody else would remove it. Nothing of it changes until Set claims it or the first Remove gives it up.
func (e *Engine) inherit() error {
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
			return err
		}
		s := e.server(f.key)
		s.has = foundState(f, reals)
		if e.inherited[f.key.Addr] {
			s.local = true
			e.locals[f.key.Addr]++
		}
	}
	return nil
}

func foundState(f found, reals []foundReal) applied {
	has := applied{exists: true, header: f.header, reals: make([]RealServer, len(reals))}
	for i, r := range reals {
		has.reals[i] = r.RealServer
	}
	return has
}

// settle marks what an earlier process left, and no Set has claimed, for removal.
func (e *Engine) settle() {
	e.settled = true
	for _, s := range e.servers {
		if s.want == nil {
			e.touch(s)
		}
	}
	e.orphans = slices.SortedFunc(maps.Keys(e.inherited), netip.Addr.Compare)
	e.inherited = map[netip.Addr]bool{}
}

// Intact compares a few virtual servers, others each time, with what the kernel has. When one differs, the next Add reads
// everything before it goes on: someone has run "ipvsadm -C", or the like.
func (e *Engine) Intact() (bool, error) {
	const sample = 3
	left := sample
	for _, s := range e.servers { // in random order
		if s.want == nil || s.dirty {
			continue
		}
		same, err := e.intact(s)
		if err != nil {
			return false, err
		}
		if !same {
			e.suspectAll()
			return false, nil
		}
		if left--; left == 0 {
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

// suspectAll has everything read again. What is not claimed yet after a start stays as it is.
func (e *Engine) suspectAll() {
	for _, s := range e.servers {
		s.suspect = true
		if s.want != nil {
			e.touch(s)
		}
	}
}

// read returns what the kernel has of a virtual server. The error is a *KeyError: of ErrForeign when another tool made it.
func (e *Engine) read(k Key) (applied, error) {
	f, ok, err := e.kernel.server(k)
	switch {
	case err != nil:
		return applied{}, &KeyError{Key: k, Err: err}
	case !ok:
		return applied{}, nil
	case !f.ours:
		return applied{}, &KeyError{Key: k, Err: ErrForeign}
	}
	reals, err := e.kernel.reals(k)
	if err != nil {
		return applied{}, &KeyError{Key: k, Err: err}
	}
	return foundState(f, reals), nil
}

// ours says whether the kernel has a virtual server of ours with this key. Deleting goes by the key alone: when ours was
// cleared ("ipvsadm -C") while it drained and another tool has made one with the same key, that one would go.
func (e *Engine) ours(k Key) (bool, error) {
	f, exists, err := e.kernel.server(k)
	if err != nil {
		return false, &KeyError{Key: k, Err: err}
	}
	return exists && f.ours, nil
}

// surprising errors say that the kernel has something else than we think: reading it and trying again may help.
func surprising(err error) bool {
	return errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ESRCH)
}
