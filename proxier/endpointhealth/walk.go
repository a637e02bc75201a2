package endpointhealth

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// This file is what walks over all slices. An index would cost memory for every endpoint of the cluster, all the time. The
// walks take a twentieth of the time at most, but for a few short ones in a row.

// findMembers finds the Services of endpoints. It skips Services that want nothing of this.
func (m *Monitor) findMembers(unknown map[netip.AddrPort][]Member) {
	addrs := map[netip.Addr]bool{}
	for at := range unknown {
		addrs[at.Addr()] = true
	}
	for _, sl := range m.Store.Slices() {
		for i := range sl.Endpoints {
			if e := &sl.Endpoints[i]; addrs[e.Addr] {
				m.addMember(unknown, sl, e)
			}
		}
	}
}

// join has the detector know that a Service has endpoints that came under suspicion before it had them.
func (m *Monitor) join(svc *state.Service, list []*state.Slice) {
	if m.detector.Idle() || svc.Outliers.Mode == state.OutlierOff {
		return
	}
	for _, sl := range list {
		for _, p := range sl.Ports {
			for i := range sl.Endpoints {
				e := &sl.Endpoints[i]
				if at := netip.AddrPortFrom(e.Addr, p.Port); p.Protocol == state.TCP && m.detector.misses(at, sl.Service) {
					m.detector.join(at, m.memberOf(svc, e, list))
				}
			}
		}
	}
}

// memberOf is an endpoint as a Service with these slices has it.
func (m *Monitor) memberOf(svc *state.Service, e *state.Endpoint, all []*state.Slice) Member {
	return Member{Service: svc.Name, Word: wordOfEndpoint(e), Nodes: m.nodesOf(all), Refusals: svc.Outliers.Refusals}
}

func (m *Monitor) addMember(unknown map[netip.AddrPort][]Member, sl *state.Slice, e *state.Endpoint) {
	for _, p := range sl.Ports {
		at := netip.AddrPortFrom(e.Addr, p.Port)
		list, wanted := unknown[at]
		has := slices.ContainsFunc(list, func(o Member) bool { return o.Service == sl.Service })
		if p.Protocol != state.TCP || !wanted || has {
			continue
		}
		svc, all := m.Store.Service(sl.Service)
		if svc != nil && svc.Outliers.Mode != state.OutlierOff {
			unknown[at] = append(list, m.memberOf(svc, e, all))
		}
	}
}

// maxWitnesses is how many endpoints are asked whether this node still has its network. One answer is enough.
const maxWitnesses = 4

// askWitnesses asks endpoints on other nodes than these.
func (m *Monitor) askWitnesses(ctx context.Context, nodes []string) Witnesses {
	list := m.witnesses(nodes)
	if len(list) == 0 {
		return NoWitness
	}
	answers := make(chan Answer, len(list))
	for _, at := range list {
		go func() { answers <- m.Ask(ctx, suspicion(at)) }()
	}
	for range list {
		switch (<-answers).Fault {
		case NoFault, Refused, HostAnswers:
			return SomeAnswer
		}
	}
	return AllSilent
}

// witnesses chooses endpoints: one of the API server, which no tenant can write, and random ones of different
// namespaces.
func (m *Monitor) witnesses(failing []string) (list []netip.AddrPort) {
	_, servers := m.Store.Service(kubernetesService())
	all := m.Store.Slices()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	m.mu.Lock()
	suspects := m.detector.Addresses()
	m.mu.Unlock()
	namespaces := map[string]bool{}
	for _, sl := range append(slices.Clone(servers), all...) {
		if len(list) == maxWitnesses {
			break
		}
		if namespaces[sl.Service.Namespace] && len(list) > maxWitnesses/2 {
			continue // leave room for others; half of the witnesses may come from one namespace
		}
		if at, ok := m.witness(sl, failing, suspects); ok && !slices.Contains(list, at) {
			list = append(list, at)
			namespaces[sl.Service.Namespace] = true
		}
	}
	return list
}

// witness chooses a ready endpoint of a slice on another node.
func (m *Monitor) witness(sl *state.Slice, failing []string, suspects map[netip.Addr]bool) (at netip.AddrPort, ok bool) {
	port := slices.IndexFunc(sl.Ports, func(p state.SlicePort) bool { return p.Protocol == state.TCP })
	if port < 0 || len(sl.Endpoints) == 0 {
		return at, false
	}
	first := rand.IntN(len(sl.Endpoints))
	for i := range sl.Endpoints {
		e := &sl.Endpoints[(first+i)%len(sl.Endpoints)]
		at := netip.AddrPortFrom(e.Addr, sl.Ports[port].Port)
		elsewhere := e.Node != m.Settings.NodeName && !slices.Contains(failing, e.Node)
		if e.Ready && elsewhere && !suspects[e.Addr] && (sl.Service == kubernetesService() || m.permit.refuses(at) == "") {
			return at, true
		}
	}
	return at, false
}

// When a node dies, its endpoints die together, but the kernel notices each of them only when one of its own clients
// repeats a packet. Where connections are few, that takes too long: after 3 seconds without an answer of the node's
// hardware address, the kernel tells all clients "no route to host". So the first silent endpoint of a node puts the
// other endpoints of that node under suspicion, in the Services that eject. They are asked as well, and only their own
// answers count. Two bad answers take 1.3 seconds, and clients repeat a packet after one: there is no time to wait for an
// answer of the first endpoint before.
const (
	// maxSiblings is how many endpoints come under suspicion with the first one of a node. Namespaces have turns: a tenant
	// may write the name of any node into thousands of endpoints.
	maxSiblings = 256
	// siblingPeriod is how often the endpoints of one node are looked for.
	siblingPeriod = 10 * time.Second
	// scanRate and scanBurst bound the time of walks: 50 ms at once, and a twentieth of the time in the long run.
	scanRate  = 0.05
	scanBurst = time.Second
)

// siblingsOf is a node of which an endpoint gave no answer: to clients, and then to a question. The two do not share their
// period, so that a client that loses packets does not keep a dead node from being noticed.
type siblingsOf struct {
	node  string
	asked bool
}

type siblings struct {
	wanted map[siblingsOf]bool
	looked map[siblingsOf]time.Time
}

func newSiblings() siblings {
	return siblings{wanted: map[siblingsOf]bool{}, looked: map[siblingsOf]time.Time{}}
}

// want notes that an endpoint of a node gave no answer.
func (s *siblings) want(node siblingsOf, now time.Time) {
	for n, at := range s.looked {
		if now.Sub(at) >= siblingPeriod {
			delete(s.looked, n)
		}
	}
	if _, done := s.looked[node]; !done {
		s.wanted[node] = true
	}
}

// suspectSiblings puts the endpoints of such nodes under suspicion. Like suspect, it walks over all slices, and its walks
// take a twentieth of the time at most.
func (m *Monitor) suspectSiblings() {
	began := time.Now()
	if len(m.siblings.wanted) == 0 || m.scans.spent(scanRate, scanBurst, began) {
		return
	}
	nodes := map[string]bool{}
	for of := range m.siblings.wanted {
		nodes[of.node] = true
	}
	found := m.findSiblings(nodes)
	m.findMembers(found)
	m.scans.used += time.Since(began)
	for of := range m.siblings.wanted {
		m.siblings.looked[of] = began
	}
	clear(m.siblings.wanted)
	m.mu.Lock()
	defer m.mu.Unlock()
	for at, members := range found {
		m.detector.Suspect(at, SameNode, members, began)
	}
}

// findSiblings finds the endpoints on some nodes in the Services that eject.
func (m *Monitor) findSiblings(nodes map[string]bool) map[netip.AddrPort][]Member {
	found := state.NewTurns[netip.AddrPort]()
	for _, sl := range m.Store.Slices() {
		ejects, known := false, false
		for i := range sl.Endpoints {
			e := &sl.Endpoints[i]
			if !nodes[e.Node] || e.Node == m.Settings.NodeName {
				continue
			}
			if !known {
				svc, _ := m.Store.Service(sl.Service)
				ejects, known = svc != nil && m.modeOf(svc.Name, svc.Outliers.Mode) == state.OutlierEject, true
			}
			if ejects {
				m.addSibling(&found, sl, e)
			}
		}
	}
	chosen := map[netip.AddrPort][]Member{}
	for _, at, more := found.Pop(); more && len(chosen) < maxSiblings; _, at, more = found.Pop() {
		chosen[at] = nil
	}
	return chosen
}

// addSibling adds the TCP ports of an endpoint. An endpoint may be found more than once.
func (m *Monitor) addSibling(found *state.Turns[netip.AddrPort], sl *state.Slice, e *state.Endpoint) {
	namespace := sl.Service.Namespace
	for _, p := range sl.Ports {
		at := netip.AddrPortFrom(e.Addr, p.Port)
		if p.Protocol == state.TCP && found.Waiting(namespace) < maxSiblings && m.permit.refuses(at) == "" {
			found.Push(namespace, at)
		}
	}
}

// wordOf is what slices say about an endpoint.
func wordOf(list []*state.Slice, at netip.AddrPort) (w Word, found bool) {
	for _, sl := range list {
		if !slices.ContainsFunc(sl.Ports, func(p state.SlicePort) bool { return p.Protocol == state.TCP && p.Port == at.Port() }) {
			continue
		}
		for i := range sl.Endpoints {
			if e := &sl.Endpoints[i]; e.Addr == at.Addr() {
				return wordOfEndpoint(e), true
			}
		}
	}
	return w, false
}

func wordOfEndpoint(e *state.Endpoint) Word {
	return Word{Node: e.Node, Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating}
}

// nodesOf are the nodes that slices name, without this one.
func (m *Monitor) nodesOf(list []*state.Slice) int {
	var nodes []string
	for _, sl := range list {
		for i := range sl.Endpoints {
			if n := sl.Endpoints[i].Node; n != "" && n != m.Settings.NodeName {
				nodes = append(nodes, n)
			}
		}
	}
	slices.Sort(nodes)
	return len(slices.Compact(nodes))
}
