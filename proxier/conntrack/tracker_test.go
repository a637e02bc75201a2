package conntrack

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestRandomInterleavings compares the Tracker with a plain model of the kernel while passes, failed passes, cleanings
// and failed cleanings overlap at random. In the model, every flow that the rules allow exists at once. The test
// requires:
//   - A cleaning never removes a flow that the rules in force would make.
//   - A flow that is stale when a cleaning begins is gone when that cleaning is done, unless its frontend changed
//     meanwhile. Then the next cleaning removes it.
func TestRandomInterleavings(t *testing.T) {
	for seed := range uint64(500) {
		m := newModel(t, seed)
		for m.step = range 80 {
			switch m.rng.IntN(4) {
			case 0, 1:
				m.pass()
			case 2:
				m.begin()
			case 3:
				m.end()
			}
			m.send()
		}
		m.settle()
	}
}

// place is a frontend of the model and the address to which its clients send.
type place struct {
	frontend Frontend
	dst      netip.AddrPort
}

var places = func() (list []place) {
	for i := range byte(5) {
		dst := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, i}), 53)
		list = append(list, place{frontend: Frontend{Addr: dst.Addr(), Port: 53, Family: state.IPv4}, dst: dst})
	}
	return append(list, place{frontend: Frontend{Port: 30053, Family: state.IPv4}, dst: netip.MustParseAddrPort("192.168.0.1:30053")})
}()

// rule is what the model's kernel does with packets to a frontend.
type rule struct {
	serving []netip.AddrPort
	ipvs    bool
}

func (r rule) equal(other rule) bool {
	return r.ipvs == other.ipvs && slices.Equal(r.serving, other.serving)
}

// services is the number of Services in the model. A place whose owner is services belongs to no Service.
const services = 4

// model is a kernel with rules and flows, and what a correct Tracker has to remove from it.
type model struct {
	t       *testing.T
	rng     *rand.Rand
	seed    uint64
	step    int
	tracker *Tracker
	owner   [6]int                 // of each place
	ports   [services][2]rule      // each Service has two ports
	planned [services]map[int]rule // by place: what the Tracker was told last
	rules   map[int]rule           // by place: what the kernel has
	pending bool                   // the kernel does not have everything that the Tracker was told
	flows   map[Flow]int           // in the kernel, with their place
	running *cleaning
}

// cleaning is a Stale on its way.
type cleaning struct {
	stale   Stale
	must    []Flow       // stale when it began
	changed map[int]bool // places that changed since
}

// newModel starts with flows that an earlier process made. Each went to any endpoint.
func newModel(t *testing.T, seed uint64) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 5)), seed: seed, rules: map[int]rule{}, flows: map[Flow]int{}}
	var former []Frontend
	for at, p := range places {
		m.owner[at] = m.rng.IntN(services + 1)
		if m.rng.IntN(2) == 0 {
			former = append(former, p.frontend)
			m.rules[at] = rule{serving: endpoints(m.rng, 4)}
		}
	}
	m.tracker = NewTracker(former...)
	m.send()
	for s := range services {
		m.ports[s] = [2]rule{m.rule(), m.rule()}
		m.set(s)
	}
	m.apply()
	return m
}

func endpoints(rng *rand.Rand, most int) (list []netip.AddrPort) {
	for i := range byte(4) {
		if len(list) < most && rng.IntN(2) == 0 {
			list = append(list, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, i}), 53))
		}
	}
	return list
}

func (m *model) rule() rule { return rule{serving: endpoints(m.rng, 3), ipvs: m.rng.IntN(5) == 0} }

// pass changes some Services, in any order. Sometimes the kernel refuses the rules and keeps the old ones.
func (m *model) pass() {
	var changed [services + 1]bool
	if m.rng.IntN(2) == 0 {
		at := m.rng.IntN(len(places))
		changed[m.owner[at]] = true
		m.owner[at] = m.rng.IntN(services + 1)
		changed[m.owner[at]] = true
	}
	if s := m.rng.IntN(services); m.rng.IntN(2) == 0 {
		m.ports[s][m.rng.IntN(2)] = m.rule()
		changed[s] = true
	}
	changed[m.rng.IntN(services)] = true // perhaps without a difference
	for _, s := range m.rng.Perm(services) {
		if changed[s] {
			m.set(s)
		}
	}
	m.pending = true
	if m.rng.IntN(4) > 0 {
		m.apply()
	}
}

func (m *model) set(s int) {
	before := m.planned[s]
	m.planned[s] = map[int]rule{}
	p := &plan.Service{Ports: make([]plan.Port, 2)}
	for i, r := range m.ports[s] {
		p.Ports[i] = plan.Port{Family: state.IPv4, Protocol: state.UDP, Serving: r.serving}
	}
	for at, owner := range m.owner {
		if owner != s {
			continue
		}
		port, f := &p.Ports[at%2], places[at].frontend
		port.Frontends = append(port.Frontends, plan.Frontend{Frontend: serviceport.Frontend{Addr: f.Addr, Port: f.Port, IPVS: m.ports[s][at%2].ipvs}})
		m.planned[s][at] = m.ports[s][at%2]
	}
	m.noteChanges(before, m.planned[s])
	if len(m.planned[s]) == 0 {
		p = nil
	}
	m.tracker.Set(state.Name{Namespace: fmt.Sprint(s), Name: "web"}, p)
}

func (m *model) noteChanges(before, after map[int]rule) {
	if m.running == nil {
		return
	}
	for at := range places {
		was, existed := before[at]
		if is, exists := after[at]; existed != exists || !was.equal(is) {
			m.running.changed[at] = true
		}
	}
}

func (m *model) apply() {
	m.pending = false
	m.rules = map[int]rule{}
	for s := range services {
		for at, r := range m.planned[s] {
			m.rules[at] = r
		}
	}
}

// send makes all flows that the rules allow.
func (m *model) send() {
	for at, p := range places {
		r, served := m.rules[at]
		if !served {
			m.flows[Flow{Dst: p.dst, Reply: p.dst}] = at
		}
		for _, e := range r.serving {
			m.flows[Flow{Dst: p.dst, Reply: e, DNAT: !r.ipvs}] = at
		}
	}
}

// good is the definition of a stale flow in the package comment, negated, for the rules in the kernel.
func (m *model) good(f Flow) bool {
	r, served := m.rules[m.flows[f]]
	if !served {
		return f.Reply == f.Dst
	}
	return slices.Contains(r.serving, f.Reply) && (f.DNAT || r.ipvs)
}

// begin starts a cleaning when none is under way and the kernel has everything. Sometimes it is only for some namespaces.
func (m *model) begin() {
	if m.running != nil || m.pending {
		return
	}
	waiting := m.tracker.Waiting()
	some := slices.DeleteFunc(slices.Clone(waiting), func(string) bool { return m.rng.IntN(4) == 0 })
	m.running = &cleaning{stale: m.tracker.Stale(some...), changed: map[int]bool{}}
	if len(some) < len(waiting) {
		return
	}
	for f := range m.flows {
		if !m.good(f) {
			m.running.must = append(m.running.must, f)
		}
	}
}

// end finishes the cleaning. Passes may have happened since it began, and happen between its end and Done.
func (m *model) end() {
	c := m.running
	if c == nil {
		return
	}
	fails := m.rng.IntN(4) == 0
	for f := range m.flows {
		if !c.stale.has(f, addrSet(nodePortAddrs)) || fails && m.rng.IntN(2) == 0 {
			continue
		}
		if m.good(f) {
			m.t.Fatalf("seed %d step %d: a cleaning removes %v, which is good", m.seed, m.step, f)
		}
		delete(m.flows, f)
	}
	m.send()
	if m.rng.IntN(2) == 0 {
		m.pass()
		m.send()
	}
	m.running = nil
	if fails {
		return
	}
	m.tracker.Done()
	for _, f := range c.must {
		if at, exists := m.flows[f]; exists && !c.changed[at] {
			m.t.Fatalf("seed %d step %d: %v was stale before the cleaning and is there after it", m.seed, m.step, f)
		}
	}
}

// settle lets a last pass and cleanings succeed. Nothing stale may remain then, in the kernel or in the Tracker.
func (m *model) settle() {
	m.running = nil
	m.apply()
	m.send()
	stale := m.tracker.all()
	for f := range m.flows {
		switch removed := stale.has(f, addrSet(nodePortAddrs)); {
		case removed && m.good(f):
			m.t.Fatalf("seed %d: the last cleaning removes %v, which is good", m.seed, f)
		case !removed && !m.good(f):
			m.t.Fatalf("seed %d: the last cleaning leaves %v, which is stale", m.seed, f)
		}
	}
	m.tracker.Done()
	if s := m.tracker.all(); !s.Empty() {
		m.t.Fatalf("seed %d: after the last cleaning there is still something to clean: %v", m.seed, s)
	}
}
