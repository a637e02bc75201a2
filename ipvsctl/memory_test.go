package ipvsctl

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// memory is a kernel in memory with injected errors.
type memory struct {
	*memkernel.IPVS
	fail      func(o Operation) error // before an operation takes effect; nil: the operation goes on
	after     func(o Operation) error // after an operation took effect
	readError error
}

func newMemory() *memory { return &memory{IPVS: memkernel.NewIPVS()} }

func (m *memory) execute(o Operation) error {
	if m.fail != nil {
		if err := m.fail(o); err != nil {
			return err
		}
	}
	if err := (conn{m.IPVS}).execute(o); err != nil || m.after == nil {
		return err
	}
	return m.after(o)
}

func (m *memory) Servers() ([]wire.Server, error) {
	list, _ := m.IPVS.Servers()
	return list, m.readError
}

func (m *memory) Server(k Key) (wire.Server, bool, error) {
	f, exists, _ := m.IPVS.Server(k)
	return f, exists, m.readError
}

func (m *memory) Reals(k Key) ([]RealStatus, error) {
	list, _ := m.IPVS.Reals(k)
	return list, m.readError
}

func (m *memory) ListAddresses() ([]netip.Addr, error) {
	list, _ := m.IPVS.ListAddresses()
	return list, m.readError
}

func (m *memory) IsLocal(addr netip.Addr) (bool, error) { return m.Local[addr], m.readError }

func (m *memory) Timeouts() (Timeouts, error) { return m.Config, m.readError }

// foreign makes a virtual server as another tool does.
func (m *memory) foreign(k Key, scheduler string, reals ...string) {
	var list []RealServer
	for _, r := range reals {
		list = append(list, parseReal(r))
	}
	m.Put(wire.Server{Key: k, Header: wire.Header{Scheduler: scheduler}}, list...)
}

// putReal makes or changes a real server as another tool does.
func (m *memory) putReal(k Key, real string) {
	r := parseReal(real)
	m.State[k].Reals[r.Addr] = &RealStatus{RealServer: r}
}

// picture prints everything that a kernel has, whichever tool made it.
func picture(t testing.TB, k kernel) string {
	t.Helper()
	servers, err := k.Servers()
	must(t, err)
	var lines []string
	for _, f := range servers {
		reals, err := k.Reals(f.Key)
		must(t, err)
		line := fmt.Sprintf("%s %s", f.Key, f.Scheduler)
		if flags := f.Flags.Text(f.Scheduler); flags != "" {
			line += " " + flags
		}
		if f.Persistence > 0 {
			line += " persistent " + (time.Duration(f.Persistence) * time.Second).String()
		}
		if !f.Ours {
			line += " foreign"
		}
		for _, r := range reals {
			line += fmt.Sprintf(" %s=%d", r.Addr, r.Weight)
			if r.RealServer != (RealServer{Addr: r.Addr, Weight: r.Weight}) {
				line += fmt.Sprintf("%+v", r.RealServer)
			}
		}
		lines = append(lines, line)
	}
	addrs, err := k.ListAddresses()
	must(t, err)
	for _, a := range addrs {
		lines = append(lines, "local "+a.String())
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// Memory is an engine over a kernel in memory.
type Memory struct {
	*Engine
	contents *memkernel.IPVS
}

func openOver(t testing.TB, o Options, k *memkernel.IPVS) *Memory {
	t.Helper()
	e, err := New(o, k)
	must(t, err)
	return &Memory{Engine: e, contents: k}
}

// TestRestartBesideOthers checks that a new engine on the same kernel takes over what the earlier one left, and does not
// touch what another tool made.
func TestRestartBesideOthers(t *testing.T) {
	foreign := vs("tcp 10.96.0.9:80 rr", "10.0.0.1:80")
	m := openOver(t, Options{GracefulPeriod: period}, memkernel.NewIPVS())
	mustSet(t, m.Engine, "web", web)
	pass(t, m.Engine, start())
	m.contents.State[web.Key].Reals[web.RealServers[0].Addr].Active = 1
	m.contents.Put(wire.Server{Key: foreign.Key, Header: foreign.header()}, foreign.RealServers...)
	m = openOver(t, Options{GracefulPeriod: period}, m.contents)
	wantAddrs(t, "to guard", m.Coming(), "[10.96.0.1]")
	text := "virtual server 10.96.0.9:80/tcp: " + ErrForeign.Error()
	wantObstacle(t, m.Obstacle([]VirtualServer{foreign}), ErrForeign, text)
	pass(t, m.Engine, start())
	_, err := m.Tick(start().Add(firstCheck))
	must(t, err)
	expect(t, "kernel", picture(t, conn{m.contents}), `
		10.96.0.1:80/tcp lc 10.0.0.1:8080=0
		10.96.0.9:80/tcp rr foreign 10.0.0.1:80=1
		local 10.96.0.1`)
	delete(m.contents.State, foreign.Key)
	wantObstacle(t, m.Obstacle([]VirtualServer{foreign}), nil, "")
}

// start is the time at which tests with a kernel in memory start.
func start() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

const period = 15 * time.Minute

func openMemory(t testing.TB, m *memory, exclude ...netip.Prefix) *Engine {
	t.Helper()
	e, err := openEngine(Options{GracefulPeriod: period, Exclude: exclude}, m)
	must(t, err)
	return e
}

// pass calls Add and Remove, as each pass does.
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
	v := VirtualServer{Key: parseKey(word[0] + " " + word[1]), Scheduler: word[2], Local: true}
	for _, r := range reals {
		v.RealServers = append(v.RealServers, parseReal(r))
	}
	return v
}

// parseKey makes a key from "tcp 10.96.0.1:80".
func parseKey(text string) Key {
	word, frontend, _ := strings.Cut(text, " ")
	at := netip.MustParseAddrPort(frontend)
	return Key{Addr: at.Addr(), Port: at.Port(), Protocol: protocol(word)}
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

// with returns a changed copy.
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
