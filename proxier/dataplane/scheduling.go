package dataplane

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/contents/hashing"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Schedulers carry the names that IPVS gives them (ipvsadm(8)). The scheduler random is Verdict's own, and the default.
const schedulerRandom = "random"

// Scheduling decides which engine serves a service port, and by which scheduler.
type Scheduling struct {
	Backend config.Backend
	// Default is the scheduler of Services that name none, with backend ipvs.
	Default string
	// Preferred is the scheduler of Services that name none, with another backend. Empty: random. Where the kernel does not
	// have it, nft does what comes nearest, and no Service has a problem: nobody has asked for it by name.
	Preferred string
	// Available lists the schedulers of IPVS that the kernel has. It is empty when IPVS is not used.
	Available []string
	// Unavailable says why IPVS is not used. It appears in messages about Services.
	Unavailable string
}

// method is how a service port is balanced.
type method struct {
	ipvs      bool   // IPVS serves the port; otherwise nft does
	scheduler string // of IPVS
	flags     wire.Flags
	// forwarding is how packets to external and load balancer IPs reach real servers.
	forwarding wire.Forwarding
	nft        program.Method // for what nft serves of the port, all of it or a part
	heaviest   bool           // nft serves only the endpoints of the greatest weight
	problem    string         // what of the wish is not honored
}

// methodOf finds the method for a port. Where a port cannot be served without NAT, NAT forwards: its clients are served, and
// the problem says what is missing.
func (s *Scheduling) methodOf(p *plan.Port) method {
	asked, reason := p.Balancing, ""
	if asked.Forwarding != state.NAT {
		reason = needsNAT(p)
	}
	if reason == "" {
		return s.choose(asked)
	}
	asked.Forwarding = state.NAT
	m := s.choose(asked)
	m.note(fmt.Sprintf("forwarding %s: %s; NAT forwards", p.Balancing.Forwarding, reason))
	return m
}

// needsNAT returns why a port cannot be served without NAT, or "".
func needsNAT(p *plan.Port) string {
	i := slices.IndexFunc(p.Frontends, func(f plan.Frontend) bool { return fromOutside(&f) })
	if i < 0 {
		return "the port has no external IP and no load balancer IP"
	}
	port := p.Frontends[i].Port
	for _, pool := range [][]serviceport.Endpoint{p.Cluster, p.Local} {
		for _, e := range pool {
			if e.Addr.Port() != port {
				return fmt.Sprintf("endpoint %s does not have the port of the Service, %d, which packets keep", e.Addr, port)
			}
		}
	}
	return ""
}

// choose finds the method for what a Service asks for.
func (s *Scheduling) choose(asked state.Balancing) method {
	if asked == (state.Balancing{}) && s.Backend != config.BackendIPVS {
		return s.unasked() // nearly all Services
	}
	m := method{scheduler: asked.Scheduler}
	m.parseForwarding(asked.Forwarding)
	if m.scheduler != "" && !slices.Contains(allSchedulers, m.scheduler) {
		m.problem = fmt.Sprintf("unknown scheduler %q; the default is used", m.scheduler)
		m.scheduler = ""
	}
	everything := s.Backend == config.BackendIPVS || m.withoutNAT()
	if m.scheduler == "" && s.Backend != config.BackendIPVS {
		m.scheduler = s.unasked().scheduler
	}
	if m.scheduler == "" && everything && len(s.Available) > 0 {
		m.scheduler = s.Default // before the flags, which may belong to it
	}
	m.parseFlags(asked.Flags)
	s.chooseEngine(&m, everything)
	if !m.ipvs {
		m.approximate(s.Unavailable)
	}
	m.serveByNFT()
	return m
}

// unasked returns the method for a Service that asks for nothing, unless the backend is ipvs.
func (s *Scheduling) unasked() method {
	m := method{scheduler: s.Preferred}
	if slices.Contains(s.Available, m.scheduler) {
		m.ipvs = m.needsIPVS()
	} else if m.nearest().method == program.Random {
		m.scheduler = "" // nft picks at random, by weight
	}
	m.serveByNFT()
	return m
}

func (m *method) parseFlags(list string) {
	if list == "" {
		return
	}
	flags, err := wire.ParseFlags(m.scheduler, list)
	if err != nil {
		m.note("scheduler flags ignored: " + err.Error())
		return
	}
	m.flags = flags
}

// note adds to what is not honored.
func (m *method) note(problem string) {
	if m.problem != "" {
		problem = m.problem + "; " + problem
	}
	m.problem = problem
}

// parseForwarding notes what is wrong, and then NAT forwards.
func (m *method) parseForwarding(asked state.Forwarding) {
	if asked == state.NAT {
		return
	}
	f, err := wire.ParseForwarding(string(asked))
	if err != nil {
		m.note(fmt.Sprintf("forwarding: %v; NAT forwards", err))
	}
	m.forwarding = f
}

func (m *method) withoutNAT() bool { return m.forwarding.Method != wire.NAT }

// chooseEngine decides whether IPVS serves the port, and with which scheduler. If IPVS serves everything, another scheduler
// stands in for one that the kernel lacks.
func (s *Scheduling) chooseEngine(m *method, everything bool) {
	if len(s.Available) == 0 {
		return
	}
	switch {
	case everything && m.scheduler == schedulerRandom:
		m.note(fmt.Sprintf("IPVS has no scheduler random; %s is used", s.Default))
		m.scheduler = s.Default
	case !everything && !m.needsIPVS():
		return
	}
	if !slices.Contains(s.Available, m.scheduler) {
		m.note(fmt.Sprintf("the kernel has no scheduler %s (module %s)", m.scheduler, ipvsctl.Module(m.scheduler)))
		if !everything {
			return
		}
		if !slices.Contains(s.Available, s.Default) {
			return // possible unless the backend is ipvs
		}
		m.note(s.Default + " is used")
		m.scheduler, m.flags = s.Default, 0
	}
	m.ipvs = true
}

// needsIPVS reports whether the nft program cannot do what is asked, or not exactly.
func (m *method) needsIPVS() bool { return m.withoutNAT() || !m.nearest().exact }

// approximate notes what nft does in place of what IPVS would do.
func (m *method) approximate(why string) {
	if why != "" {
		why = " (" + why + ")"
	}
	if m.withoutNAT() {
		m.note("forwarding without NAT needs IPVS" + why + "; NAT forwards")
	}
	if instead := m.nearest().instead; instead != "" {
		m.note(fmt.Sprintf("scheduler %s needs IPVS%s; %s", m.scheduler, why, instead))
	}
}

// nearest is what nft does that comes closest to a scheduler.
type nearest struct {
	method   program.Method
	heaviest bool   // only the endpoints of the greatest weight
	exact    bool   // it is the same as what IPVS does
	instead  string // what an Event says about it; empty: it is near enough
}

func (m *method) nearest() nearest {
	switch m.scheduler {
	case "", schedulerRandom:
		return nearest{method: program.Random, exact: true}
	case "sh", "mh":
		if m.flags&wire.HashPort != 0 {
			return nearest{method: program.SourcePortHash, exact: true}
		}
		return nearest{method: program.SourceHash, exact: true}
	case "rr", "wrr":
		// "numgen inc" has one counter for all pools of a class: connections are shared evenly, but not in strict turn.
		return nearest{method: program.InTurn}
	case "fo":
		return nearest{method: program.Random, heaviest: true, instead: "the endpoints of the greatest weight are picked at random"}
	}
	return nearest{method: program.Random, instead: "endpoints are picked at random, by weight"}
}

// serveByNFT chooses how nft serves the port, or its share of it.
func (m *method) serveByNFT() {
	n := m.nearest()
	m.nft, m.heaviest = n.method, n.heaviest
}

var allSchedulers = append([]string{schedulerRandom}, ipvsctl.Schedulers()...)

// Schedulers returns the names of all schedulers. The index of a name is the one in Totals.Pools.
func Schedulers() []string { return slices.Clone(allSchedulers) }

// index is that of the scheduler of a port in Schedulers. What nft serves has the scheduler that fits the method.
func (m *method) index(served program.Method) uint8 {
	name, _ := SchedulerOf(served)
	if m.ipvs {
		name = m.scheduler
	}
	return uint8(max(0, slices.Index(allSchedulers, name)))
}

// SchedulerOf returns the scheduler, and its flags, that a Service asks for to be served by a method.
func SchedulerOf(m program.Method) (name, flags string) {
	switch m {
	case program.InTurn:
		return "rr", ""
	case program.SourceHash:
		return "mh", ""
	case program.SourcePortHash:
		return "mh", "mh-port"
	}
	return schedulerRandom, ""
}

// Slots counts what nft needs for a port beyond one element for each endpoint; see plan.Slots. IPVS needs none of that, and
// is not asked: nft may have to serve a part of the port, or all of it.
func (s *Scheduling) Slots(port *plan.Port) (weights int, tables map[string]int) {
	m := s.methodOf(port)
	if m.nft.Hashes() {
		return 0, hashing.Needed(rules(port, &m))
	}
	for _, list := range [...][]serviceport.Endpoint{port.Cluster, port.Local} {
		if m.heaviest || !weighted(list) {
			continue
		}
		for _, n := range slots(list) {
			weights += int(n) - 1
		}
	}
	return weights, nil
}

// answers returns the external address that endpoints answer with when this node continues a connection of another node
// (--fleet). Only a port that hashes clients has one: the nodes of a fleet share nothing else. It notes why a connection
// cannot go on.
func answers(port *plan.Port, m *method) (at netip.AddrPort) {
	if port.Protocol != state.TCP || !m.nft.Hashes() {
		return at
	}
	if ranged(port) {
		m.note(fmt.Sprintf("port %s is a range, whose connections end with this node in spite of --fleet", port.Name))
		return at
	}
	masqueraded, several := 0, 0
	for i := range port.Frontends {
		fe := &port.Frontends[i]
		switch {
		case fe.Kind != plan.ExternalIP && fe.Kind != plan.LoadBalancer:
		case m.ipvs:
			m.note(fmt.Sprintf("IPVS serves port %s; only nft continues connections of other nodes (--fleet)", port.Name))
			return netip.AddrPort{}
		case fe.Masquerade == serviceport.MasqueradeAlways:
			masqueraded++
		case at.IsValid():
			several++
		default:
			at = netip.AddrPortFrom(fe.Addr, fe.Port)
		}
	}
	switch {
	case several > 0:
		m.note(fmt.Sprintf("port %s has %d external addresses of one family; with --fleet, what endpoints send in connections "+
			"of other nodes is not translated, because it could belong to any of them", port.Name, several+1))
		return netip.AddrPort{}
	case masqueraded > 0:
		m.note(fmt.Sprintf("connections to port %s are masqueraded, so they end with this node in spite of --fleet; "+
			"externalTrafficPolicy Local keeps the client's address", port.Name))
	}
	return at
}

// ranged reports whether a port is a range of ports. All its frontends are.
func ranged(p *plan.Port) bool { return len(p.Frontends) > 0 && p.Frontends[0].EndPort != 0 }
