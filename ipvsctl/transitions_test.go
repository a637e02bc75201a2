package ipvsctl

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl/wire"
)

// wanted is a complete wanted state: the virtual servers of each service port.
type wanted map[string][]VirtualServer

// randomState returns a state whose frontends and endpoints overlap with those of other random states.
func randomState(rng *rand.Rand, schedulers []string) wanted {
	state := wanted{}
	for _, k := range rng.Perm(24)[:rng.IntN(12)] {
		name := fmt.Sprintf("port-%d", rng.IntN(6))
		state[name] = append(state[name], randomServer(rng, k, schedulers))
	}
	return state
}

func randomServer(rng *rand.Rand, k int, schedulers []string) VirtualServer {
	addr, real := "10.96.0.%d", "10.0.0.%d"
	if k%2 == 1 {
		addr, real = "fd96::%d", "fd00::%d"
	}
	v := VirtualServer{
		Key: Key{
			Addr:     netip.MustParseAddr(fmt.Sprintf(addr, 1+k/8)),
			Port:     uint16(80 + k/4%2),
			Protocol: []Protocol{TCP, UDP, SCTP}[k%3],
		},
		Local:     rng.IntN(4) > 0,
		Scheduler: schedulers[rng.IntN(len(schedulers))],
	}
	if wire.FlagNames(v.Scheduler) != nil {
		v.Flags = wire.Fallback * wire.Flags(rng.IntN(4))
	}
	if rng.IntN(3) == 0 {
		v.Persistence = time.Duration(1+rng.IntN(3)) * time.Hour
	}
	for _, r := range rng.Perm(6)[:rng.IntN(5)] {
		end := RealServer{Addr: netip.AddrPortFrom(netip.MustParseAddr(fmt.Sprintf(real, 1+r)), 8080), Weight: uint16(rng.IntN(3))}
		if others := otherForwarding(); rng.IntN(3) == 0 {
			end.Addr, end.Forwarding = netip.AddrPortFrom(end.Addr.Addr(), v.Port), others[rng.IntN(len(others))]
		}
		v.RealServers = append(v.RealServers, end)
	}
	return v
}

// otherForwarding has every forwarding but NAT.
func otherForwarding() (list []wire.Forwarding) {
	for _, text := range []string{"route", "tunnel", "tunnel,gue", "tunnel,gue,6081,csum", "tunnel,gue,6082,remcsum", "tunnel,gre", "tunnel,gre,csum"} {
		f, err := wire.ParseForwarding(text)
		if err != nil {
			panic(err) // the text is in this function
		}
		list = append(list, f)
	}
	return list
}

// change turns one state into another, with the service ports in random order.
func (from wanted) change(t testing.TB, rng *rand.Rand, e *Engine, to wanted) {
	t.Helper()
	var names []string
	for name := range from {
		if to[name] == nil {
			names = append(names, name)
		}
	}
	for name := range to {
		names = append(names, name)
	}
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		if servers := to[name]; servers != nil {
			mustSet(t, e, name, servers...)
		} else {
			e.Delete(name)
		}
	}
}

// fresh is the picture of a state that was made from nothing.
func fresh(t testing.TB, state wanted) string {
	t.Helper()
	m := newMemory()
	e := openMemory(t, m)
	for name, servers := range state {
		mustSet(t, e, name, servers...)
	}
	pass(t, e, start())
	return picture(t, m)
}

// drained advances the clock until all drains are over.
func drained(t testing.TB, e *Engine, now *time.Time) {
	t.Helper()
	*now = now.Add(period)
	_, err := e.Tick(*now)
	must(t, err)
	if n := draining(e); n != 0 {
		t.Fatalf("%d real servers still drain", n)
	}
}

// draining counts the real servers that drain.
func draining(e *Engine) int {
	n := 0
	for _, s := range e.drains {
		n += len(s.deadlines)
	}
	return n
}

// TestEveryStateFromEveryState checks that the kernel ends with the wanted state, whichever state came before.
func TestEveryStateFromEveryState(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	states := []wanted{{}}
	for range 24 {
		states = append(states, randomState(rng, Schedulers()))
	}
	for i, from := range states {
		for j, to := range states {
			m, now := newMemory(), start()
			e := openMemory(t, m)
			wanted{}.change(t, rng, e, from)
			pass(t, e, now)
			from.change(t, rng, e, to)
			pass(t, e, now)
			drained(t, e, &now)
			if got, want := picture(t, m), fresh(t, to); got != want {
				t.Fatalf("from state %d to state %d:\n%s\nwant:\n%s", i, j, got, want)
			}
		}
	}
}

// TestRandomWalk makes many random changes in one kernel, with errors, restarts, other tools and a clock.
func TestRandomWalk(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			m := newMemory()
			rng := rand.New(rand.NewPCG(seed, 0))
			w := &walk{rng: rng, kernel: m, now: start(), schedulers: Schedulers(), state: wanted{}}
			w.interfere = func() { interfere(rng, m) }
			w.restart(t)
			for range 60 {
				w.step(t)
			}
		})
	}
}

type walk struct {
	rng        *rand.Rand
	kernel     kernel
	engine     *Engine
	state      wanted
	now        time.Time
	schedulers []string
	interfere  func()
}

func (w *walk) restart(t *testing.T) {
	t.Helper()
	e, err := openEngine(Options{GracefulPeriod: period}, w.kernel)
	must(t, err)
	w.engine = e
	wanted{}.change(t, w.rng, e, w.state)
}

// step changes the state while something goes wrong. Then it lets the engine repair everything and compares the kernel.
func (w *walk) step(t *testing.T) {
	t.Helper()
	next := randomState(w.rng, w.schedulers)
	if w.rng.IntN(8) == 0 {
		w.state = next
		w.restart(t)
	} else {
		w.state.change(t, w.rng, w.engine, next)
		w.state = next
	}
	if w.rng.IntN(2) == 0 {
		w.interfere()
		_, _ = w.engine.Add(w.now) // these may fail
		_, _ = w.engine.Remove(w.now)
		w.now = w.now.Add(time.Duration(w.rng.IntN(1200)) * time.Second)
		_, _ = w.engine.Tick(w.now)
		if m, ok := w.kernel.(*memory); ok {
			m.fail, m.after = nil, nil
		}
		w.engine.distrust() // as Intact does when it notices
	}
	pass(t, w.engine, w.now)
	drained(t, w.engine, &w.now)
	if got, want := picture(t, w.kernel), fresh(t, w.state); got != want {
		t.Fatalf("kernel:\n%s\nwant:\n%s", got, want)
	}
}

// interfere deletes virtual servers or makes operations fail.
func interfere(rng *rand.Rand, m *memory) {
	switch rng.IntN(4) {
	case 0:
		clear(m.State)
	case 1:
		for k := range m.State {
			delete(m.State, k)
			break
		}
	case 2:
		m.fail = func(Operation) error { return chance(rng, syscall.ENOMEM) }
	case 3:
		m.after = func(Operation) error { return chance(rng, syscall.ENOBUFS) }
	}
}

func chance(rng *rand.Rand, err error) error {
	if rng.IntN(5) == 0 {
		return err
	}
	return nil
}

func TestRandomStatesDiffer(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var text strings.Builder
	for range 50 {
		text.WriteString(fresh(t, randomState(rng, Schedulers())))
	}
	for _, part := range []string{"/tcp ", "/udp ", "/sctp ", "[fd96::", "10.96.0.", "persistent", "mh-port", "local "} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no random state has %q", part)
		}
	}
}
