package nft

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
)

// TestTransitionsInMemory makes the random changes of TestTransitions over a kernel in memory, which shows less and needs no
// privileges. After each transaction, the kernel must have what the ledger has, and mean the same as a new build.
func TestTransitionsInMemory(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 2
	}
	for seed := range seeds {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			w, m := newWorld(seed), OpenMemory(Options{})
			for step := range 20 {
				if step%7 == 6 {
					m = w.restartInMemory(t, m)
				}
				for range 1 + w.rand.IntN(6) {
					w.change(t, m.Engine)
				}
				if r := mustApply(t, m.Engine); step > 0 && r.Full != w.expectFull {
					t.Fatalf("step %d: whole tables written: %t, expected: %t", step, r.Full, w.expectFull)
				}
				w.expectFull = false
				w.compareInMemory(t, step, m)
			}
		})
	}
}

// restartInMemory makes another engine, which gets all ports in another order.
func (w *world) restartInMemory(t *testing.T, m *Memory) *Memory {
	t.Helper()
	m = restart(t, m)
	for _, p := range w.ports {
		mustSet(t, m.Engine, p)
	}
	m.SetGlobals(w.globals)
	w.expectFull = true
	return m
}

func (w *world) compareInMemory(t *testing.T, step int, m *Memory) {
	t.Helper()
	is := parseListing(t, m.String())
	if diff := cmp.Diff(parseListing(t, m.render()), is); diff != "" {
		t.Fatalf("step %d: the kernel differs from the ledger (- ledger, + kernel):\n%s", step, diff)
	}
	if whole, err := m.Intact(); err != nil || !whole {
		t.Fatalf("step %d: the tables are intact: %t, %v", step, whole, err)
	}
	fresh := OpenMemory(Options{})
	example{ports: slices.Collect(maps.Values(w.ports)), globals: w.globals}.install(t, fresh.Engine)
	if diff := cmp.Diff(meaningOf(t, parseListing(t, fresh.String())), meaningOf(t, is)); diff != "" {
		t.Fatalf("step %d: a new build means something else (- new build, + kernel):\n%s", step, diff)
	}
}

// TestRestartInMemory restarts the engine with the same ports in another order, and nothing of them changes. Then it restarts
// with a few other ports, and few elements change.
func TestRestartInMemory(t *testing.T) {
	m := OpenMemory(Options{})
	ports := append(restartPorts(program.IPv4), restartPorts(program.IPv6)...)
	mustSet(t, m.Engine, ports...)
	mustApply(t, m.Engine)
	before := parseListing(t, m.String())
	slices.Reverse(ports)
	m = restart(t, m)
	mustSet(t, m.Engine, ports...)
	if changes := portElements(mustApply(t, m.Engine)); len(changes) > 0 {
		t.Fatalf("the first transaction changes %d elements:\n%s", len(changes), strings.Join(changes[:min(20, len(changes))], "\n"))
	}
	if diff := cmp.Diff(before, parseListing(t, m.String())); diff != "" {
		t.Fatalf("before and after a restart:\n%s", diff)
	}

	ports = slices.Delete(ports, 3, 4)
	ports[7].Cluster = ports[7].Cluster[1:]
	ports[10].Frontends = nil
	m = restart(t, m)
	mustSet(t, m.Engine, ports...)
	if n := len(portElements(mustApply(t, m.Engine))); n == 0 || n > 60 {
		t.Errorf("%d elements change", n)
	}
	fresh := OpenMemory(Options{})
	mustSet(t, fresh.Engine, ports...)
	mustApply(t, fresh.Engine)
	if diff := cmp.Diff(meaningOf(t, parseListing(t, fresh.String())), meaningOf(t, parseListing(t, m.String()))); diff != "" {
		t.Errorf("a new build means something else (- new build, + restart):\n%s", diff)
	}
}

// restartPorts are service ports of all kinds.
func restartPorts(f program.Family) []contents.Port {
	ports := manyPorts(f, 0, 20)
	for i := range ports {
		switch i % 5 {
		case 1:
			ports[i].Affinity = time.Hour
		case 2:
			ports[i].Method = program.SourceHash
		case 3:
			ports[i].Method = program.InTurn
		case 4:
			ports[i].Cluster[0].Slots = 3
		}
	}
	wide := scalePort(f, 900, 700) // of a class that is made when it is needed
	for i, p := range manyPorts(f, 970, 6) {
		for j := range p.Cluster {
			p.Cluster[j].Addr = netip.AddrPortFrom(p.Cluster[j].Addr.Addr(), 0)
		}
		p.Frontends[0] = ranged(p.Frontends[0], uint16(1000*i+1000))
		if p.Method = program.Method(i / 2); p.Method != program.SourceHash {
			p.Affinity = time.Duration(i%2) * time.Hour
		}
		ports = append(ports, p)
	}
	return append(ports, append(longPorts(f), wide)...)
}

// longPorts are ports of Services with names of full length, which differ in the last letters only.
func longPorts(f program.Family) []contents.Port {
	ports := manyPorts(f, 950, 4)
	namespace, name := strings.Repeat("n", 63), strings.Repeat("s", 62)
	for i, end := range []string{"a:http", "a:https", "b:http", "b:" + strings.Repeat("p", 63)} {
		ports[i].Name, ports[i].Affinity = namespace+"/"+name+end, time.Hour
	}
	ports[2].Local, ports[2].Cluster = ports[2].Cluster, nil
	ports[2].Frontends[0].Pool = program.LocalPool
	ports[3].Affinity = 0
	return ports
}

// elementChange finds what a transaction does to elements that belong to service ports.
var elementChange = regexp.MustCompile(`(?m)^(add|delete) element \S+ verdict (\S+) .*$`)

// portElements lists the changes of elements, without those of small sets that are always written as a whole.
func portElements(r Result) []string {
	return slices.DeleteFunc(elementChange.FindAllString(r.Text(), -1), func(line string) bool {
		set := strings.Fields(line)[4]
		return set == program.Dispatch.Name() || set == program.ServiceCIDRs.Name() || set == program.PodCIDRs.Name() || set == program.NodePodCIDRs.Name()
	})
}

// world is a random state, and what the engine was asked for.
type world struct {
	rand    *rand.Rand
	ports   map[portID]contents.Port
	globals contents.Globals

	plain      bool // frontends are neither ranges nor served by IPVS
	expectFull bool // the next Apply does not depend on what the engine knows of the kernel
}

type portID struct {
	family program.Family
	name   string
}

func portName(n int) string { return fmt.Sprintf("ns/port-%d:p", n) }

func newWorld(seed uint64) *world {
	return &world{rand: rand.New(rand.NewPCG(seed, 0)), ports: map[portID]contents.Port{}}
}

func (w *world) one(in int) bool { return w.rand.IntN(in) == 0 }

// change makes one change in the state and in the engine.
func (w *world) change(t *testing.T, e *Engine) {
	if w.one(10) {
		w.changeGlobals(e)
		return
	}
	w.changePort(t, e)
}

// changePort makes one change of a service port.
func (w *world) changePort(t *testing.T, e *Engine) {
	id := w.current(portID{program.Families()[w.rand.IntN(2)], portName(w.rand.IntN(12))})
	before, existed := w.ports[id]
	if existed && w.one(6) {
		delete(w.ports, id)
		e.Delete(id.family, id.name)
		return
	}
	before.Formerly = ""
	if existed && w.one(6) {
		delete(w.ports, id)
		before.Formerly, id = id.name, id.renamed()
	}
	p := w.port(id, before)
	w.ports[id] = p
	mustSet(t, e, p)
}

// renamed is the other name of a port.
func (id portID) renamed() portID {
	if base, is := strings.CutSuffix(id.name, ":p"); is {
		return portID{id.family, base + ":q"}
	}
	return portID{id.family, strings.TrimSuffix(id.name, ":q") + ":p"}
}

// current is the name that a port has now.
func (w *world) current(id portID) portID {
	if _, is := w.ports[id.renamed()]; is {
		return id.renamed()
	}
	return id
}

// port makes a new version of a port: usually the old one with one thing changed.
func (w *world) port(id portID, p contents.Port) contents.Port {
	p.Family, p.Name = id.family, id.name
	if p.Protocol == 0 || w.one(20) {
		p.Protocol = []uint8{tcp, udp, sctp}[w.rand.IntN(3)]
		p.Frontends = nil
	}
	what := w.rand.IntN(5)
	if what < 2 || p.Cluster == nil {
		port := uint16(0) // connections keep theirs
		if !w.one(4) {
			port = 80
		}
		p.Cluster, p.Local = w.endpoints(id.family, 13, port), w.endpoints(id.family, 5, port)
	}
	if what == 1 {
		p.Hairpin = []netip.Addr{w.address(id.family, 1, w.rand.IntN(16))}
	}
	if what == 2 {
		p.Affinity = []time.Duration{0, 0, time.Hour, 90 * time.Second}[w.rand.IntN(4)]
	}
	if what == 3 {
		p.Method = program.Method(w.rand.IntN(3))
	}
	if p.Method.Hashes() {
		// One such pool is enough, because its table has at least 1,021 slots.
		p.Cluster, p.Local = slices.Clone(p.Cluster[:min(2, len(p.Cluster))]), nil
		if len(p.Cluster) == 1 {
			p.Cluster[0].Slots = min(p.Cluster[0].Slots, 1) // its table has one
		}
		if !strings.HasPrefix(id.name, "ns/port-0:") || id.family != program.IPv4 {
			p.Method = program.InTurn
		}
	}
	if what == 4 || p.Frontends == nil {
		p.Frontends, p.Sources = w.frontends(id, p.Protocol), w.prefixes(id.family)
	}
	return p
}

func (w *world) address(f program.Family, net byte, last int) netip.Addr {
	if f == program.IPv6 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 1: net, 15: byte(last)})
	}
	return netip.AddrFrom4([4]byte{10, net, 0, byte(last)})
}

func (w *world) endpoints(f program.Family, most int, port uint16) []contents.Endpoint {
	var out []contents.Endpoint
	for _, i := range w.rand.Perm(16)[:w.rand.IntN(most)] {
		out = append(out, contents.Endpoint{
			Addr: netip.AddrPortFrom(w.address(f, 1, i), port+uint16(i%2)*min(port, 1)), Slots: uint16(w.rand.IntN(3)), Local: i%3 == 0,
		})
	}
	sortEndpoints(out)
	return out
}

// frontends draws from few addresses and ports. So frontends often move between ports, even within one transaction.
func (w *world) frontends(id portID, protocol uint8) []contents.Frontend {
	type place struct {
		addr netip.Addr
		port uint16
	}
	taken := map[place]bool{}
	for other, p := range w.ports {
		for _, fe := range p.Frontends {
			taken[place{fe.Addr, fe.Port}] = taken[place{fe.Addr, fe.Port}] || other != id && other.family == id.family && p.Protocol == protocol
		}
	}
	var out []contents.Frontend
	for range 1 + w.rand.IntN(4) {
		fe := w.frontend(id.family)
		if at := (place{fe.Addr, fe.Port}); !taken[at] {
			taken[at] = true
			out = append(out, fe)
		}
	}
	return out
}

func (w *world) frontend(f program.Family) contents.Frontend {
	fe := contents.Frontend{
		Addr: w.address(f, 96, w.rand.IntN(8)), Port: uint16(80 + w.rand.IntN(3)),
		Pool: program.PoolChoice(w.rand.IntN(4)), Refusal: program.Refusal(w.rand.IntN(3)), Masquerade: serviceport.Masquerade(w.rand.IntN(3)), IPVS: w.one(4) && !w.plain,
	}
	if w.one(4) {
		fe.Addr = netip.Addr{}
		return fe
	}
	fe.ClusterIP, fe.Firewalled = w.one(2), w.one(3)
	if w.one(4) && !w.plain {
		fe.Port, fe.IPVS = fe.Port*100, false
		fe.EndPort = fe.Port + 1 + uint16(w.rand.IntN(99))
	}
	return fe
}

// prefixes often contain one another.
func (w *world) prefixes(f program.Family) []netip.Prefix {
	var out []netip.Prefix
	for range w.rand.IntN(4) {
		a := w.address(f, byte(w.rand.IntN(4)), w.rand.IntN(4))
		p, _ := a.Prefix([]int{0, 8, 14, 16, 30, 31, 32}[w.rand.IntN(7)] * a.BitLen() / 32)
		out = append(out, p)
	}
	return out
}

func (w *world) changeGlobals(e *Engine) {
	g := w.globals
	switch w.rand.IntN(4) {
	case 0:
		g.ServiceCIDRs = append(w.prefixes(program.IPv4), w.prefixes(program.IPv6)...)
	case 1:
		g.PodCIDRs = append(w.prefixes(program.IPv4), w.prefixes(program.IPv6)...)
		g.NodePodCIDRs = g.PodCIDRs[w.rand.IntN(len(g.PodCIDRs)+1):]
	case 2:
		g.NodePortAddresses = nil
		for range w.rand.IntN(4) {
			g.NodePortAddresses = append(g.NodePortAddresses, w.address(program.IPv4, 7, w.rand.IntN(4)), w.address(program.IPv6, 7, w.rand.IntN(4)))
		}
	case 3:
		if w.one(2) {
			g.MasqueradeAll = w.one(2)
		}
		g.PodInterface = []string{"", "", "veth*", "cni0"}[w.rand.IntN(4)]
	}
	for _, f := range program.Families() {
		w.expectFull = w.expectFull || w.globals.Program(f) != g.Program(f)
	}
	w.globals = g
	e.SetGlobals(g)
}
