//go:build !nokernel

package nft

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
)

var (
	transitionSeed  = flag.Uint64("transition-seed", 1, "first seed of the random transitions")
	transitionSeeds = flag.Uint64("transition-seeds", 4, "how many seeds of random transitions to run")
	transitionSteps = flag.Int("transition-steps", 30, "transactions for each seed")
)

// TestTransitions makes random changes, several in each transaction. After each transaction, the kernel must have
// exactly what the engine has in its mirror. It must mean the same as a new build of the same state. And nft must
// arrive at the same tables when it gets the printed transactions. Now and then, another engine goes on.
func TestTransitions(t *testing.T) {
	for seed := *transitionSeed; seed < *transitionSeed+*transitionSeeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(seed)
			n, others := newNamespace(t), [3]*namespace{newNamespace(t), newNamespace(t), newNamespace(t)}
			e := n.engine(t)
			for step := range *transitionSteps {
				if step%10 == 9 {
					e = w.restart(t, n, e)
				}
				for range 1 + w.rand.IntN(6) {
					w.change(t, e)
				}
				r := mustApply(t, e)
				others[2].replay(t, r.Text(), e)
				if step > 0 && r.Full != w.expectFull {
					t.Fatalf("step %d: whole tables written: %t, expected: %t", step, r.Full, w.expectFull)
				}
				w.expectFull = false
				clear(w.touched)
				w.compare(t, step, n, e, others)
			}
		})
	}
}

// restart makes another engine, which gets all ports in another order.
func (w *world) restart(t *testing.T, n *namespace, old *Engine) *Engine {
	if err := old.Close(); err != nil {
		t.Fatal(err)
	}
	e := n.engine(t)
	for _, p := range w.ports {
		mustSet(t, e, p)
	}
	e.SetGlobals(w.globals)
	for id := range w.ports {
		w.touched[id] = true
	}
	w.expectFull = true
	return e
}

// compare compares the kernel with the mirror, with the printed transactions, and with a new build.
func (w *world) compare(t *testing.T, step int, n *namespace, e *Engine, others [3]*namespace) {
	t.Helper()
	listed := parseListing(t, n.list(t))
	others[0].loadMirror(t, e)
	if diff := cmp.Diff(parseListing(t, others[0].list(t)), listed); diff != "" {
		t.Fatalf("step %d: the kernel differs from the mirror (- mirror, + kernel):\n%s", step, diff)
	}
	if diff := cmp.Diff(listed, parseListing(t, others[2].list(t))); diff != "" {
		t.Fatalf("step %d: the texts of the transactions lead to other tables (- kernel, + nft):\n%s", step, diff)
	}
	if step%3 != 0 {
		return // to save time; later steps show the errors of earlier ones
	}
	others[1].nft(t, "flush", "ruleset")
	fresh := others[1].engine(t)
	defer fresh.Close()
	example{ports: slices.Collect(maps.Values(w.ports)), globals: w.globals}.install(t, fresh)
	if diff := cmp.Diff(meaningOf(t, parseListing(t, others[1].list(t))), meaningOf(t, listed)); diff != "" {
		t.Fatalf("step %d: a new build means something else (- new build, + kernel):\n%s", step, diff)
	}
}

// loadMirror has nft load the engine's mirror.
func (n *namespace) loadMirror(t *testing.T, e *Engine) {
	t.Helper()
	n.nft(t, "flush", "ruleset")
	ip, ip6, _ := strings.Cut(e.render(), "table ip6 ")
	n.load(t, ip)
	n.load(t, "table ip6 "+ip6) // separately: both together are too large for the socket of an ordinary user
}

// replay has nft make the changes of a printed transaction. That works only for elements: nft (1.0.6 and 1.1.3) accepts
// a rule that translates by a map only together with the map, and not if the map is in the kernel already.
func (n *namespace) replay(t *testing.T, text string, e *Engine) {
	t.Helper()
	if strings.Contains(text, "add rule") {
		n.loadMirror(t, e)
		return
	}
	n.load(t, text)
}

// world is a random state, and what the engine was asked for.
type world struct {
	rand    *rand.Rand
	ports   map[portID]contents.Port
	globals contents.Globals

	touched    map[portID]bool // changed since the last Apply; true: set, false: deleted
	expectFull bool
}

type portID struct {
	family program.Family
	name   string
}

func portName(n int) string { return fmt.Sprintf("ns/port-%d:p", n) }

func newWorld(seed uint64) *world {
	return &world{rand: rand.New(rand.NewPCG(seed, 0)), ports: map[portID]contents.Port{}, touched: map[portID]bool{}}
}

func (w *world) one(in int) bool { return w.rand.IntN(in) == 0 }

// change makes one change in the state and in the engine.
func (w *world) change(t *testing.T, e *Engine) {
	if w.one(10) {
		w.changeGlobals(e)
		return
	}
	id := w.current(portID{program.Families()[w.rand.IntN(2)], portName(w.rand.IntN(12))})
	wasSet, touched := w.touched[id]
	if touched && !w.one(10) {
		return // a second change is allowed, but makes a full transaction, unless the first one was a deletion
	}
	before, existed := w.ports[id]
	w.expectFull = w.expectFull || wasSet
	if w.touched[id] = true; existed && w.one(6) {
		w.touched[id] = false
		delete(w.ports, id)
		e.Delete(id.family, id.name)
		return
	}
	before.Formerly = ""
	if existed && w.one(6) {
		delete(w.ports, id)
		before.Formerly, id = id.name, id.renamed()
		w.touched[id] = true
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
		p.Cluster, p.Local = p.Cluster[:min(2, len(p.Cluster))], nil
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
		Pool: program.PoolChoice(w.rand.IntN(4)), Refusal: program.Refusal(w.rand.IntN(3)), Masquerade: contents.Masquerade(w.rand.IntN(3)), IPVS: w.one(4),
	}
	if w.one(4) {
		fe.Addr = netip.Addr{}
		return fe
	}
	fe.ClusterIP, fe.Firewalled = w.one(2), w.one(3)
	if w.one(4) {
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
