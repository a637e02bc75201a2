package endpointhealth

import (
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

// walker is what walks over all slices. An index would cost memory for every endpoint of the cluster, all the time. The
// walks, and readings of what the kernel noticed, take a twentieth of the time at most, but for a few short ones in a row.
type walker struct {
	*permit
	budget threadtime.Bucket
	sought report.Lately   // the nodes of siblings that were wanted
	wanted map[string]bool // the same, now
}

// scanRate and scanBurst bound the time of walks: 50 ms at once, and a twentieth of the time in the long run.
const (
	scanRate  = 0.05
	scanBurst = time.Second
)

// tired reports whether the next walk has to wait.
func (w *walker) tired(now time.Time) bool { return w.budget.Spent(scanRate, scanBurst, now) }

// measure returns a function for the end of a walk.
func (w *walker) measure() (end func()) {
	took := threadtime.Measure()
	return func() { w.budget.Used += took() }
}

// tcpPorts yields some of the endpoints of slices, each at all of its TCP ports. Whether it is one of them is asked once for each
// endpoint: a slice can have a hundred ports.
func tcpPorts(list []*state.Slice, is func(*state.Endpoint) bool) iter.Seq2[netip.AddrPort, *state.Endpoint] {
	return func(yield func(netip.AddrPort, *state.Endpoint) bool) {
		for _, sl := range list {
			for i := range sl.Endpoints {
				e := &sl.Endpoints[i]
				if !is(e) {
					continue
				}
				for _, p := range sl.Ports {
					if p.Protocol == state.TCP && !yield(netip.AddrPortFrom(e.Addr, p.Port), e) {
						return
					}
				}
			}
		}
	}
}

// members finds the endpoints of a Service at some addresses, as its slices describe them. One that wants nothing of this has none.
func (w *walker) members(svc *state.Service, list []*state.Slice, at func(netip.Addr) bool) map[netip.AddrPort]checks.Member {
	found := map[netip.AddrPort]checks.Member{}
	if svc == nil || svc.Outliers.Mode == state.OutlierOff {
		return found
	}
	nodes := 0
	for at, e := range tcpPorts(list, func(e *state.Endpoint) bool { return at(e.Addr) }) {
		if _, known := found[at]; known {
			continue
		}
		if len(found) == 0 {
			nodes = w.nodesOf(list)
		}
		found[at] = checks.Member{
			Service: svc.Name, Refusals: svc.Outliers.Refusals, Nodes: nodes,
			Word: checks.Word{Node: e.Node, Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating},
		}
	}
	return found
}

// nodesOf counts the nodes that slices name, without this one.
func (w *walker) nodesOf(list []*state.Slice) int {
	nodes := map[string]bool{}
	for _, sl := range list {
		for i := range sl.Endpoints {
			nodes[sl.Endpoints[i].Node] = true
		}
	}
	delete(nodes, "")
	delete(nodes, w.Settings.NodeName)
	return len(nodes)
}

// findMembers finds the Services of endpoints.
func (w *walker) findMembers(unknown map[netip.AddrPort][]checks.Member) {
	defer w.measure()()
	addrs := map[netip.Addr]bool{}
	for at := range unknown {
		addrs[at.Addr()] = true
	}
	at := func(a netip.Addr) bool { return addrs[a] }
	services, linked := map[state.Name]bool{}, map[string]int{} // how many of a namespace
	for _, sl := range w.Store.Slices() {
		if !services[sl.Service] && slices.ContainsFunc(sl.Endpoints, func(e state.Endpoint) bool { return at(e.Addr) }) {
			services[sl.Service] = true
		}
	}
	for name := range services {
		if linked[name.Namespace] >= maxTracked/4 {
			continue
		}
		svc, list := w.Store.Service(name)
		for at, m := range w.members(svc, list, at) {
			if _, wanted := unknown[at]; wanted {
				unknown[at] = append(unknown[at], m)
				linked[name.Namespace]++
			}
		}
	}
}

// witness is asked whether this node still has its network.
type witness struct {
	at        netip.AddrPort
	namespace string // empty: it is an API server, which no tenant can write
	alone     bool   // its silence counts if no other namespace has a witness
	fault     probe.Fault
}

const (
	maxWitnesses = 4 // endpoints
	maxServers   = 2 // API servers
)

// witnesses chooses API servers and endpoints on other nodes. Namespaces have turns.
func (w *walker) witnesses(doubts map[string]checks.Doubts) []witness {
	list, found := w.servers(), w.elsewhere(doubts)
	most := len(list) + maxWitnesses
	namespaces := slices.Collect(maps.Keys(found)) // in no order
	for i := range maxWitnesses {
		for _, namespace := range namespaces {
			if of := found[namespace]; i < len(of) && len(list) < most {
				_, concerned := doubts[namespace]
				alone := w.Settings.Manifests != "" || concerned && len(doubts) == 1
				list = append(list, witness{at: of[i], namespace: namespace, alone: alone})
			}
		}
	}
	return list
}

// elsewhere finds some endpoints of each namespace on other nodes, of the families in which endpoints gave bad answers: a node may
// lose one of them alone. Tenants write endpoints and the names of their nodes, so bad
// answers in one namespace exclude nobody else's endpoints: those on nodes without bad answers are only preferred.
func (w *walker) elsewhere(doubts map[string]checks.Doubts) map[string][]netip.AddrPort {
	all := w.Store.Slices()
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	failing, is4 := whereInDoubt(doubts)
	better, others := map[string][]netip.AddrPort{}, map[string][]netip.AddrPort{}
	for _, sl := range all {
		namespace := sl.Service.Namespace
		own := doubts[namespace]
		for _, sure := range []bool{true, false} {
			found := others
			if sure {
				found = better
			}
			may := func(e *state.Endpoint) bool {
				return e.Ready && is4[e.Addr.Is4()] && e.Node != w.Settings.NodeName && !own.Nodes[e.Node] && !own.Addrs[e.Addr] && failing[e.Node] != sure
			}
			if len(found[namespace]) == maxWitnesses {
				break
			}
			for at := range tcpPorts([]*state.Slice{sl}, may) { // one is tried: a tenant may write very many that are refused
				if !slices.Contains(found[namespace], at) && !w.refuses(at) {
					found[namespace] = append(found[namespace], at)
				}
				break
			}
		}
	}
	for namespace, list := range others {
		better[namespace] = append(better[namespace], list...)
	}
	return better
}

// whereInDoubt returns the nodes on which endpoints gave bad answers, and whether some of these are of IPv4, and of IPv6.
func whereInDoubt(doubts map[string]checks.Doubts) (nodes map[string]bool, is4 map[bool]bool) {
	nodes, is4 = map[string]bool{}, map[bool]bool{}
	for _, of := range doubts {
		maps.Copy(nodes, of.Nodes)
		for a := range of.Addrs {
			is4[a.Is4()] = true
		}
	}
	return nodes, is4
}

// servers chooses API servers elsewhere. A cluster IP may lead to one on this node.
func (w *walker) servers() (list []witness) {
	env := w.Store.Environment()
	all := slices.Concat(env.Connected, env.APIServers, w.APIServers)
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, at := range all {
		a, is := at.Addr(), witness{at: at, alone: true}
		own := a.IsLoopback() || slices.Contains(env.HostAddresses, a) || w.isNode(&env, a) || contains(env.ServiceCIDRs, a)
		if !own && len(list) < maxServers && !slices.Contains(list, is) {
			list = append(list, is)
		}
	}
	return list
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
)

// wantSiblings notes that an endpoint on a node gave no answer: to clients, or then to a question (asked). The two do not share their
// period, so that a client that loses packets does not keep a dead node from being noticed. Without a node, it does nothing.
func (w *walker) wantSiblings(node string, asked bool, now time.Time) {
	if node != "" && w.sought.Due(fmt.Sprint(node, asked), siblingPeriod, now) {
		w.wanted[node] = true
	}
}

// findSiblings finds the endpoints on the nodes that are wanted, in the Services that eject, and whose they are. It finds
// nobody while the walks have to wait.
func (w *walker) findSiblings(now time.Time) map[netip.AddrPort][]checks.Member {
	if len(w.wanted) == 0 || w.tired(now) {
		return nil
	}
	found := w.endpointsOn(w.wanted)
	clear(w.wanted)
	w.findMembers(found)
	return found
}

// endpointsOn finds the endpoints on some nodes in the Services that eject.
func (w *walker) endpointsOn(nodes map[string]bool) map[netip.AddrPort][]checks.Member {
	defer w.measure()()
	there := func(e *state.Endpoint) bool { return nodes[e.Node] && e.Node != w.Settings.NodeName }
	found := state.NewTurns[netip.AddrPort]()
	for _, sl := range w.Store.Slices() {
		tries := 0
		for at := range tcpPorts([]*state.Slice{sl}, there) { // an endpoint may be found more than once
			if tries++; tries == 1 && !w.ejectsService(sl.Service) || tries > maxSiblings {
				break
			}
			if found.Waiting(sl.Service.Namespace) < maxSiblings && !w.refuses(at) {
				found.Push(sl.Service.Namespace, at)
			}
		}
	}
	chosen := map[netip.AddrPort][]checks.Member{}
	for _, at, more := found.Pop(); more && len(chosen) < maxSiblings; _, at, more = found.Pop() {
		chosen[at] = nil
	}
	return chosen
}

func (w *walker) ejectsService(name state.Name) bool {
	svc, _ := w.Store.Service(name)
	return svc != nil && w.ejects(svc)
}
