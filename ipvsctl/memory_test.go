package ipvsctl

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// memory stands in for the kernel where faults are put in and where the machine has no IPVS. It is as strict as the
// kernel: TestMemoryIsLikeTheKernel compares the two under a kernel with IPVS.
type memory struct {
	state     map[Key]*memoryServer
	local     map[netip.Addr]bool
	conns     map[netip.AddrPort]int  // active connections of real servers
	fail      func(o Operation) error // before an operation; nil error: go on
	after     func(o Operation) error // after an operation took effect
	readError error
	done      Operations
	config    Timeouts
}

type memoryServer struct {
	found
	reals map[netip.AddrPort]uint16
}

func newMemory() *memory {
	return &memory{state: map[Key]*memoryServer{}, local: map[netip.Addr]bool{}, conns: map[netip.AddrPort]int{}}
}

func (m *memory) close() {}

func (m *memory) execute(o Operation) error {
	if m.fail != nil {
		if err := m.fail(o); err != nil {
			return err
		}
	}
	if err := m.apply(o); err != nil {
		return err
	}
	m.done = append(m.done, o)
	if m.after != nil {
		return m.after(o)
	}
	return nil
}

func (m *memory) apply(o Operation) error {
	switch o.Kind {
	case AddAddress:
		m.local[o.Server.Addr] = true
		return nil
	case DeleteAddress:
		delete(m.local, o.Server.Addr)
		return nil
	}
	s := m.state[o.Server.Key]
	if err := m.check(o, s); err != nil || s == nil && o.Kind != AddServer {
		return err
	}
	switch o.Kind {
	case AddServer:
		m.state[o.Server.Key] = &memoryServer{found{key: o.Server.Key, header: o.Server.header(), ours: true}, map[netip.AddrPort]uint16{}}
	case EditServer:
		s.header, s.ours = o.Server.header(), true
	case DeleteServer:
		delete(m.state, o.Server.Key)
	case AddReal, EditReal:
		s.reals[o.Real.Addr] = o.Real.Weight
	case DeleteReal:
		delete(s.reals, o.Real.Addr)
	}
	return nil
}

// check returns what the kernel, behind conn, answers to an operation that does not fit.
func (m *memory) check(o Operation, s *memoryServer) error {
	known := slices.Contains(Schedulers(), o.Server.Scheduler)
	deletion := o.Kind == DeleteServer || o.Kind == DeleteReal
	switch {
	case o.Kind == AddServer && s != nil:
		return syscall.EEXIST
	case o.Kind == AddServer && !known:
		return syscall.ENOENT
	case o.Kind == AddServer, deletion:
		return nil
	case s == nil:
		return syscall.ESRCH
	case o.Kind == EditServer && !known:
		return syscall.ENOENT
	}
	_, exists := s.reals[o.Real.Addr]
	switch {
	case o.Kind == AddReal && exists:
		return syscall.EEXIST
	case o.Kind == EditReal && !exists:
		return syscall.ENOENT
	}
	return nil
}

func (m *memory) servers() ([]found, error) {
	var list []found
	for _, s := range m.state {
		list = append(list, s.found)
	}
	return list, m.readError
}

func (m *memory) server(k Key) (found, bool, error) {
	if s := m.state[k]; s != nil {
		return s.found, true, m.readError
	}
	return found{}, false, m.readError
}

func (m *memory) reals(k Key) ([]foundReal, error) {
	s := m.state[k]
	if s == nil || m.readError != nil {
		return nil, m.readError
	}
	var list []foundReal
	for addr, weight := range s.reals {
		list = append(list, foundReal{RealServer{addr, weight}, m.conns[addr], 0})
	}
	sortReals(list)
	return list, nil
}

func (m *memory) listAddresses() ([]netip.Addr, error) {
	return slices.Collect(maps.Keys(m.local)), m.readError
}
func (m *memory) isLocal(addr netip.Addr) (bool, error) { return m.local[addr], m.readError }

func (m *memory) timeouts() (Timeouts, error) { return m.config, m.readError }

func (m *memory) setTimeouts(t Timeouts) error {
	if t.TCP != 0 {
		m.config.TCP = t.TCP
	}
	if t.TCPFin != 0 {
		m.config.TCPFin = t.TCPFin
	}
	if t.UDP != 0 {
		m.config.UDP = t.UDP
	}
	return nil
}

// put is what another tool does.
func (m *memory) put(k Key, scheduler string, reals ...string) {
	s := &memoryServer{found{key: k, header: header{scheduler: scheduler}}, map[netip.AddrPort]uint16{}}
	for _, r := range reals {
		s.reals[netip.MustParseAddrPort(r)] = 1
	}
	m.state[k] = s
}

// picture prints everything that a kernel has, whoever made it.
func picture(t testing.TB, k kernel) string {
	t.Helper()
	servers, err := k.servers()
	must(t, err)
	var lines []string
	for _, f := range servers {
		reals, err := k.reals(f.key)
		must(t, err)
		line := fmt.Sprintf("%s %s", f.key, f.header.scheduler)
		if flags := f.header.flags.text(f.header.scheduler); flags != "" {
			line += " " + flags
		}
		if f.header.persistence > 0 {
			line += " persistent " + (time.Duration(f.header.persistence) * time.Second).String()
		}
		if !f.ours {
			line += " of others"
		}
		for _, r := range reals {
			line += fmt.Sprintf(" %s=%d", r.Addr, r.Weight)
		}
		lines = append(lines, line)
	}
	addrs, err := k.listAddresses()
	must(t, err)
	for _, a := range addrs {
		lines = append(lines, "local "+a.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// start is the clock of all tests with a memory.
func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

const period = 15 * time.Minute

func openMemory(t testing.TB, m *memory, exclude ...netip.Prefix) *Engine {
	t.Helper()
	e, err := newEngine(Options{GracefulPeriod: period, Exclude: exclude}, m)
	must(t, err)
	return e
}

// pass does what the loop does in one pass.
func pass(t testing.TB, e *Engine, now time.Time) Operations {
	t.Helper()
	added, err := e.Add(now)
	must(t, err)
	removed, err := e.Remove(now)
	must(t, err)
	return append(added.Operations, removed.Operations...)
}

func mustSet(t testing.TB, e *Engine, name string, servers ...VirtualServer) {
	t.Helper()
	must(t, e.Set(name, servers))
}

// vs makes a virtual server from "tcp 10.96.0.1:80 lc" and real servers like "10.0.0.1:8080" or "10.0.0.1:8080=3".
func vs(frontend string, reals ...string) VirtualServer {
	word := strings.Fields(frontend)
	at := netip.MustParseAddrPort(word[1])
	v := VirtualServer{Key: Key{at.Addr(), at.Port(), protocol(word[0])}, Scheduler: word[2], Local: true}
	for _, r := range reals {
		v.RealServers = append(v.RealServers, parseReal(r))
	}
	return v
}

func protocol(word string) Protocol {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		if p.String() == word {
			return p
		}
	}
	panic("unknown protocol " + word)
}

func parseReal(text string) RealServer {
	addr, weight, weighted := strings.Cut(text, "=")
	r := RealServer{Addr: netip.MustParseAddrPort(addr), Weight: 1}
	if weighted {
		if _, err := fmt.Sscan(weight, &r.Weight); err != nil {
			panic(err)
		}
	}
	return r
}

// with changes a copy.
func with(v VirtualServer, change func(*VirtualServer)) VirtualServer {
	change(&v)
	return v
}

func expect(t testing.TB, what, got, want string) {
	t.Helper()
	tidy := func(text string) string {
		var lines []string
		for line := range strings.Lines(text) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, line)
			}
		}
		return strings.Join(lines, "\n")
	}
	if tidy(got) != tidy(want) {
		t.Errorf("%s:\n%s\nwant:\n%s", what, tidy(got), tidy(want))
	}
}
