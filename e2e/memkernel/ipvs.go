package memkernel

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

// IPVS is the part of IPVS that package ipvsctl uses, in memory, with local routes. It is as strict as the real one: a test under a
// kernel with IPVS compares their answers.
type IPVS struct {
	State  map[wire.Key]*Server
	Local  map[netip.Addr]bool
	Config wire.Timeouts
	Synced []wire.Daemon
}

// Server is a virtual server with its real servers.
type Server struct {
	wire.Server
	Reals map[netip.AddrPort]*wire.RealStatus
}

// NewIPVS returns an empty kernel with the timeouts that Linux has by default.
func NewIPVS() *IPVS {
	return &IPVS{
		State:  map[wire.Key]*Server{},
		Local:  map[netip.Addr]bool{},
		Config: wire.Timeouts{TCP: 15 * time.Minute, TCPFin: 2 * time.Minute, UDP: 5 * time.Minute},
	}
}

// Put makes a virtual server. Without the mark, it is one of another tool.
func (m *IPVS) Put(f wire.Server, reals ...wire.RealServer) {
	s := &Server{Server: f, Reals: map[netip.AddrPort]*wire.RealStatus{}}
	for _, r := range reals {
		s.Reals[r.Addr] = &wire.RealStatus{RealServer: r}
	}
	m.State[f.Key] = s
}

// String prints what the kernel has, sorted.
func (m *IPVS) String() string {
	var lines []string
	for _, s := range m.State {
		line := fmt.Sprintf("ipvsadm -A %s%s ours=%t", s.Option(), s.Options(), s.Ours)
		for _, r := range s.sortedReals() {
			line += "\n  " + r.RealServer.Options()
		}
		lines = append(lines, line)
	}
	for addr := range m.Local {
		lines = append(lines, "local "+addr.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func (s *Server) sortedReals() []wire.RealStatus {
	var list []wire.RealStatus
	for _, r := range s.Reals {
		list = append(list, *r)
	}
	wire.SortReals(list)
	return list
}

// Change is as strict as the kernel behind wire.Socket.
func (m *IPVS) Change(c wire.Command, k wire.Key, h wire.Header, r wire.RealServer) error {
	s := m.State[k]
	switch c {
	case wire.DeleteServer:
		delete(m.State, k)
		return nil
	case wire.AddServer, wire.EditServer:
		return m.changeServer(c, k, h, s)
	}
	switch exists := s != nil && s.Reals[r.Addr] != nil; {
	case c == wire.DeleteReal && !exists:
	case s == nil:
		return syscall.ESRCH
	case c == wire.DeleteReal:
		delete(s.Reals, r.Addr)
	case c == wire.AddReal && exists:
		return syscall.EEXIST
	case c == wire.EditReal && !exists:
		return syscall.ENOENT
	case exists:
		s.Reals[r.Addr].RealServer = r
	default:
		s.Reals[r.Addr] = &wire.RealStatus{RealServer: r}
	}
	return nil
}

// changeServer adds or changes a virtual server; s is nil if there is none.
func (m *IPVS) changeServer(c wire.Command, k wire.Key, h wire.Header, s *Server) error {
	schedulers := []string{"rr", "wrr", "lc", "wlc", "sed", "nq", "lblc", "lblcr", "dh", "fo", "ovf", "twos", "sh", "mh"}
	switch add := c == wire.AddServer; {
	case add && s != nil:
		return syscall.EEXIST
	case !add && s == nil:
		return syscall.ESRCH
	case !slices.Contains(schedulers, h.Scheduler):
		return syscall.ENOENT
	case add:
		m.Put(wire.Server{Key: k, Header: h, Ours: true})
	default:
		s.Header, s.Ours, s.Adopted = h, true, false
	}
	return nil
}

func (m *IPVS) Servers() ([]wire.Server, error) {
	var list []wire.Server
	for _, s := range m.State {
		list = append(list, s.Server)
	}
	return list, nil
}

func (m *IPVS) Server(k wire.Key) (wire.Server, bool, error) {
	if s := m.State[k]; s != nil {
		return s.Server, true, nil
	}
	return wire.Server{}, false, nil
}

func (m *IPVS) Reals(k wire.Key) ([]wire.RealStatus, error) {
	if s := m.State[k]; s != nil {
		return s.sortedReals(), nil
	}
	return nil, nil
}

func (m *IPVS) AddAddress(addr netip.Addr) error {
	m.Local[addr] = true
	return nil
}

func (m *IPVS) DeleteAddress(addr netip.Addr) error {
	delete(m.Local, addr)
	return nil
}

func (m *IPVS) ListAddresses() ([]netip.Addr, error) { return slices.Collect(maps.Keys(m.Local)), nil }

func (m *IPVS) IsLocal(addr netip.Addr) (bool, error) { return m.Local[addr], nil }

func (m *IPVS) SetAdopted(k wire.Key, adopted bool) error {
	s := m.State[k]
	if s == nil {
		return syscall.ESRCH
	}
	s.Ours, s.Adopted = adopted, adopted
	return nil
}

func (m *IPVS) Timeouts() (wire.Timeouts, error) { return m.Config, nil }

func (m *IPVS) SetTimeouts(t wire.Timeouts) error {
	old := m.Config
	m.Config = wire.Timeouts{TCP: cmp.Or(t.TCP, old.TCP), TCPFin: cmp.Or(t.TCPFin, old.TCPFin), UDP: cmp.Or(t.UDP, old.UDP)}
	return nil
}

func (m *IPVS) Daemons() ([]wire.Daemon, error) { return slices.Clone(m.Synced), nil }

func (m *IPVS) StartDaemon(d wire.Daemon) error {
	if slices.ContainsFunc(m.Synced, d.SameRole) {
		return syscall.EEXIST
	}
	m.Synced = append(m.Synced, d)
	return nil
}

func (m *IPVS) StopDaemon(d wire.Daemon) error {
	before := len(m.Synced)
	if m.Synced = slices.DeleteFunc(m.Synced, d.SameRole); len(m.Synced) == before {
		return syscall.ESRCH
	}
	return nil
}

func (m *IPVS) Close() error { return nil }
