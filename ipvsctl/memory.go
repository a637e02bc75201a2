package ipvsctl

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// Memory is an Engine that works on a kernel in memory. It shows what the Engine would do, without IPVS and without
// privileges. Its kernel is as strict as the real one: a test under a kernel with IPVS compares their answers.
type Memory struct {
	*Engine
	contents *memoryKernel
}

// OpenMemory opens an engine on an empty kernel in memory. Options.NetNS has no meaning there.
func OpenMemory(o Options) *Memory {
	k := newMemoryKernel()
	return &Memory{Engine: newEngine(o, k), contents: k}
}

// Restart opens another engine on the same kernel, as a new process does: it takes over what the earlier one left.
func (m *Memory) Restart(o Options) (*Memory, error) {
	e, err := openEngine(o, m.contents)
	if err != nil {
		return nil, err
	}
	return &Memory{Engine: e, contents: m.contents}, nil
}

// PutForeign makes a virtual server as another tool does, with the real servers in v and without the mark of this
// package. It replaces the one that has the key.
func (m *Memory) PutForeign(v VirtualServer) {
	f := wire.Server{Key: v.Key, Header: wire.Header{Scheduler: v.Scheduler, Flags: v.Flags, Persistence: wire.Seconds(v.Persistence)}}
	m.contents.put(f, v.RealServers)
}

// DeleteServer deletes a virtual server as another tool does, whichever tool made it.
func (m *Memory) DeleteServer(k Key) { delete(m.contents.state, k) }

// String prints what the kernel has as commands that make it, in the notation of Operation.String and sorted by key:
// for each address its virtual servers, each with its real servers, and then the route that makes the address local.
func (m *Memory) String() string {
	k := m.contents
	byAddress := map[netip.Addr][]Key{}
	for addr := range k.local {
		byAddress[addr] = nil
	}
	for key := range k.state {
		byAddress[key.Addr] = append(byAddress[key.Addr], key)
	}
	var b strings.Builder
	for _, addr := range slices.SortedFunc(maps.Keys(byAddress), netip.Addr.Compare) {
		for _, key := range slices.SortedFunc(slices.Values(byAddress[addr]), Key.Compare) {
			k.state[key].write(&b)
		}
		if k.local[addr] {
			fmt.Fprintln(&b, routeCommand("add", addr))
		}
	}
	return b.String()
}

// memoryKernel holds what a kernel would.
type memoryKernel struct {
	state  map[Key]*memoryServer
	local  map[netip.Addr]bool
	config Timeouts
	synced []wire.Daemon
}

type memoryServer struct {
	wire.Server
	reals map[netip.AddrPort]*RealStatus
}

// newMemoryKernel returns an empty kernel with the timeouts that Linux has by default.
func newMemoryKernel() *memoryKernel {
	return &memoryKernel{
		state:  map[Key]*memoryServer{},
		local:  map[netip.Addr]bool{},
		config: Timeouts{TCP: 15 * time.Minute, TCPFin: 2 * time.Minute, UDP: 5 * time.Minute},
	}
}

func (m *memoryKernel) put(f wire.Server, reals []RealServer) {
	s := &memoryServer{Server: f, reals: map[netip.AddrPort]*RealStatus{}}
	for _, r := range reals {
		s.reals[r.Addr] = &RealStatus{RealServer: r}
	}
	m.state[f.Key] = s
}

func (s *memoryServer) sortedReals() []RealStatus {
	var list []RealStatus
	for _, r := range s.reals {
		list = append(list, *r)
	}
	wire.SortReals(list)
	return list
}

func (s *memoryServer) write(b *strings.Builder) {
	fmt.Fprint(b, "ipvsadm -A ", s.Option(), s.Options())
	if !s.Ours {
		fmt.Fprint(b, " # another tool made this one")
	}
	fmt.Fprintln(b)
	for _, r := range s.sortedReals() {
		fmt.Fprintln(b, "ipvsadm -a", s.Option(), r.RealServer.Options())
	}
}

func (m *memoryKernel) Close() error { return nil }

// execute is as strict as the kernel behind conn.
func (m *memoryKernel) execute(o Operation) error {
	s := m.state[o.Server.Key]
	switch o.Kind {
	case AddAddress:
		m.local[o.Server.Addr] = true
		return nil
	case DeleteAddress:
		delete(m.local, o.Server.Addr)
		return nil
	case DeleteServer:
		delete(m.state, o.Server.Key)
		return nil
	case AddServer, EditServer:
		return m.executeServer(o, s)
	}
	switch exists := s != nil && s.reals[o.Real.Addr] != nil; {
	case o.Kind == DeleteReal && !exists:
	case s == nil:
		return syscall.ESRCH
	case o.Kind == DeleteReal:
		delete(s.reals, o.Real.Addr)
	case o.Kind == AddReal && exists:
		return syscall.EEXIST
	case o.Kind == EditReal && !exists:
		return syscall.ENOENT
	case exists:
		s.reals[o.Real.Addr].RealServer = o.Real
	default:
		s.reals[o.Real.Addr] = &RealStatus{RealServer: o.Real}
	}
	return nil
}

// executeServer adds or changes a virtual server; s is nil if there is none.
func (m *memoryKernel) executeServer(o Operation, s *memoryServer) error {
	switch add := o.Kind == AddServer; {
	case add && s != nil:
		return syscall.EEXIST
	case !add && s == nil:
		return syscall.ESRCH
	case !slices.Contains(Schedulers(), o.Server.Scheduler):
		return syscall.ENOENT
	case add:
		m.put(wire.Server{Key: o.Server.Key, Header: o.Server.header(), Ours: true}, nil)
	default:
		s.Header, s.Ours, s.Adopted = o.Server.header(), true, false
	}
	return nil
}

func (m *memoryKernel) Servers() ([]wire.Server, error) {
	var list []wire.Server
	for _, s := range m.state {
		list = append(list, s.Server)
	}
	return list, nil
}

func (m *memoryKernel) Server(k Key) (wire.Server, bool, error) {
	if s := m.state[k]; s != nil {
		return s.Server, true, nil
	}
	return wire.Server{}, false, nil
}

func (m *memoryKernel) Reals(k Key) ([]RealStatus, error) {
	if s := m.state[k]; s != nil {
		return s.sortedReals(), nil
	}
	return nil, nil
}

func (m *memoryKernel) listAddresses() ([]netip.Addr, error) {
	return slices.Collect(maps.Keys(m.local)), nil
}

func (m *memoryKernel) isLocal(addr netip.Addr) (bool, error) { return m.local[addr], nil }

func (m *memoryKernel) SetAdopted(k Key, adopted bool) error {
	s := m.state[k]
	if s == nil {
		return syscall.ESRCH
	}
	s.Ours, s.Adopted = adopted, adopted
	return nil
}

func (m *memoryKernel) Timeouts() (Timeouts, error) { return m.config, nil }

func (m *memoryKernel) SetTimeouts(t Timeouts) error {
	old := m.config
	m.config = Timeouts{TCP: cmp.Or(t.TCP, old.TCP), TCPFin: cmp.Or(t.TCPFin, old.TCPFin), UDP: cmp.Or(t.UDP, old.UDP)}
	return nil
}

func (m *memoryKernel) Daemons() ([]wire.Daemon, error) { return slices.Clone(m.synced), nil }

func (m *memoryKernel) StartDaemon(d wire.Daemon) error {
	if slices.ContainsFunc(m.synced, d.SameRole) {
		return syscall.EEXIST
	}
	m.synced = append(m.synced, d)
	return nil
}

func (m *memoryKernel) StopDaemon(d wire.Daemon) error {
	before := len(m.synced)
	if m.synced = slices.DeleteFunc(m.synced, d.SameRole); len(m.synced) == before {
		return syscall.ESRCH
	}
	return nil
}

// List returns the virtual servers of the kernel in memory, as the function List does for the real one.
func (m *Memory) List() ([]Status, error) { return listServers(m.contents, time.Time{}) }
