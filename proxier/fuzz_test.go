package proxier

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// script makes random objects out of bytes.
type script struct{ rest []byte }

func (s *script) next() byte {
	if len(s.rest) == 0 {
		return 0
	}
	b := s.rest[0]
	s.rest = s.rest[1:]
	return b
}

func (s *script) flag() bool { return s.next()&1 == 1 }

// addr is one of a few addresses, so that objects clash.
func (s *script) addr() netip.Addr {
	b := s.next() & 7
	if b > 4 {
		return netip.AddrFrom16([16]byte{0: 0xfd, 15: b})
	}
	return netip.AddrFrom4([4]byte{10, 0, 0, b})
}

func (s *script) addrs() (list []netip.Addr) {
	for range s.next() % 4 {
		list = append(list, s.addr())
	}
	return list
}

// port is one of a few ports, as addr.
func (s *script) port() uint16 { return []uint16{80, 80, 30080, 30081}[s.next()&3] }

func (s *script) protocol() state.Protocol {
	return []state.Protocol{state.TCP, state.TCP, state.TCP, state.TCP, state.UDP, state.UDP, state.UDP, state.SCTP}[s.next()&7]
}

func (s *script) service(name state.Name) *state.Service {
	svc := &state.Service{
		Name: name, ClusterIPs: s.addrs(), ExternalIPs: s.addrs(), LoadBalancerIPs: s.addrs(), ExternalLocal: s.flag(), InternalLocal: s.flag(),
		Balancing: state.Balancing{Scheduler: []string{"", "mh", "rr", "lc", "nonsense"}[s.next()%5]}, Created: time.Unix(int64(s.next()&3), 0),
	}
	if s.flag() {
		svc.Affinity = time.Duration(s.next()) * 100 * time.Second
	}
	for range s.next() % 3 {
		a := s.addr()
		prefix, _ := a.Prefix(int(s.next()) % (a.BitLen() + 1))
		svc.SourceRanges = append(svc.SourceRanges, prefix)
	}
	for i := range s.next() % 4 {
		svc.Ports = append(svc.Ports, state.ServicePort{
			Name: fmt.Sprint("p", i), Protocol: s.protocol(), Port: s.port(), NodePort: []uint16{0, s.port()}[s.next()&1],
		})
	}
	return svc
}

func (s *script) slice(svc *state.Service, number int) *state.Slice {
	sl := &state.Slice{
		Name: state.Name{Namespace: svc.Namespace, Name: fmt.Sprint(svc.Name.Name, "-", number)}, Service: svc.Name, Family: state.IPv4, Weight: uint16(s.next()) * 3,
	}
	for _, p := range svc.Ports {
		sl.Ports = append(sl.Ports, state.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: uint16(s.next())})
	}
	if s.flag() {
		sl.Family = state.IPv6
	}
	for range s.next() % 24 {
		b := s.next()
		addr := netip.AddrFrom4([4]byte{10, 0, 1, b})
		if sl.Family == state.IPv6 {
			addr = netip.AddrFrom16([16]byte{0: 0xfd, 15: b})
		}
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: addr, Ready: b&1 == 0, Serving: b&2 == 0, Terminating: b&4 == 0, Node: []string{"here", "there"}[b>>3&1]})
	}
	return sl
}

// fuzzed are the Services of the fuzz test. Two namespaces clash with each other, and two Services of one namespace share
// its budget.
var fuzzed = [...]state.Name{{Namespace: "a", Name: "x"}, {Namespace: "b", Name: "x"}, {Namespace: "b", Name: "y"}}

// FuzzPlanAndEngine lets Services of two namespaces change at random, and writes them into a kernel in memory: nothing
// panics, the kernel takes every transaction, each frontend is that of the Service which a plain model names, no element
// is about anything else, and no budget is exceeded.
func FuzzPlanAndEngine(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(48) {
		rng, input := rand.New(rand.NewPCG(seed, 3)), make([]byte, 400)
		for i := range input {
			input[i] = byte(rng.Uint32())
		}
		f.Add(input)
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		s := &script{rest: input}
		nodeAddrs := []netip.Addr{s.addr(), s.addr()} // node ports answer at the first one of each family
		if state.FamilyOf(nodeAddrs[0]) == state.FamilyOf(nodeAddrs[1]) {
			nodeAddrs = nodeAddrs[:1]
		}
		piece := 0
		if len(input) > 0 && input[len(input)-1]&1 == 1 {
			piece = 5
		}
		w := newWorldInPieces(piece, func(o *Options) {
			if s.flag() {
				o.Settings.Budgets = config.Budgets{
					ServiceFrontends: int(s.next()%32) + 1, NamespaceFrontends: int(s.next()%32) + 1,
					ServiceElements: int(s.next()%64) + 1, NamespaceElements: int(s.next()%64) + 1, NamespaceLogLines: 10,
					NamespaceChanges: 1000,
				}
			}
			o.Primary = func() ([]netip.Addr, error) { return nodeAddrs, nil }
		})
		w.store.SetHostAddresses(nodeAddrs)
		w.store.MarkSynced()
		m := model{services: map[state.Name]*state.Service{}, slices: map[state.Name][]*state.Slice{}, nodeAddrs: nodeAddrs}
		for range min(8, 1+len(input)/64) {
			m.change(s, w.store)
			if err := w.Once(); err != nil {
				t.Fatalf("%v\n%s", err, &m)
			}
			m.check(t, w)
		}
		m.checkContent(t, w)
	})
}

// place is a frontend. The zero Addr is that of a node port.
type place struct {
	family   state.Family
	addr     netip.Addr
	protocol state.Protocol
	port     uint16
}

func (p place) String() string {
	return fmt.Sprintf("%s %s port %d/%s", p.family.Version(), p.addr, p.port, p.protocol)
}

// model finds by plain search what the kernel must have.
type model struct {
	services  map[state.Name]*state.Service
	slices    map[state.Name][]*state.Slice
	nodeAddrs []netip.Addr
}

func (m *model) String() string {
	var text strings.Builder
	fmt.Fprintln(&text, "node port addresses", m.nodeAddrs)
	for _, name := range fuzzed {
		if svc := m.services[name]; svc != nil {
			fmt.Fprintf(&text, "%s: created %d, cluster IPs %v, load balancer IPs %v, external IPs %v, ports %v\n",
				name, svc.Created.Unix(), svc.ClusterIPs, svc.LoadBalancerIPs, svc.ExternalIPs, svc.Ports)
		}
	}
	return text.String()
}

// change changes or deletes a Service.
func (m *model) change(s *script, store *state.Store) {
	b := s.next()
	name := fuzzed[b%3]
	if b > 230 {
		delete(m.services, name)
		delete(m.slices, name)
		store.DeleteService(name)
		return
	}
	svc := s.service(name)
	list := []*state.Slice{s.slice(svc, 0), s.slice(svc, 1)}
	m.services[name], m.slices[name] = svc, list
	store.SetService(svc, nil)
	for _, sl := range list {
		store.SetSlice(sl, nil)
	}
}

// wanted calls each with the frontends of a Service by its own fields, and with the trust in each: 0 is the highest.
func wanted(svc *state.Service, each func(at place, trust int)) {
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		is := func(a netip.Addr) bool { return state.FamilyOf(a) == family }
		families := svc.ClusterIPs
		if len(families) == 0 { // a balancer without Kubernetes
			families = svc.LoadBalancerIPs
		}
		if !slices.ContainsFunc(families, is) {
			continue
		}
		for _, p := range svc.Ports {
			for trust, list := range [][]netip.Addr{0: svc.ClusterIPs, 2: svc.LoadBalancerIPs, 3: svc.ExternalIPs} {
				for _, a := range list {
					if is(a) && (trust == 0 || !slices.Contains(svc.ClusterIPs, a)) {
						each(place{family, a, p.Protocol, p.Port}, trust)
					}
				}
			}
			if p.NodePort != 0 {
				each(place{family, netip.Addr{}, p.Protocol, p.NodePort}, 1)
			}
		}
	}
}

// holder is a Service that asks for a place.
type holder struct {
	svc   *state.Service
	trust int
}

func (c holder) compare(o holder) int {
	return cmp.Or(cmp.Compare(c.trust, o.trust), c.svc.Created.Compare(o.svc.Created), c.svc.Compare(o.svc.Name))
}

// owners finds who has which frontend: by trust, then by age, then by name.
func (m *model) owners() map[place]holder {
	claims, clusterIPs := map[place]holder{}, map[netip.Addr]bool{}
	for _, svc := range m.services {
		wanted(svc, func(at place, trust int) {
			is := holder{svc, trust}
			if first, taken := claims[at]; !taken || is.compare(first) < 0 {
				claims[at] = is
			}
			clusterIPs[at.addr] = clusterIPs[at.addr] || trust == 0
		})
	}
	out := map[place]holder{}
	for at, is := range claims {
		nodePort, taken := claims[place{at.family, netip.Addr{}, at.protocol, at.port}]
		reaches := is.trust == 3 || slices.Contains(m.nodeAddrs, at.addr) // an external IP may be that of any node
		hides := is.trust > 1 && taken && nodePort.trust == 1 && nodePort.svc != is.svc && reaches
		if kept := is.trust == 3 && clusterIPs[at.addr]; !hides && !kept {
			out[at] = is
		}
	}
	return out
}

// check compares frontends, endpoints and budgets.
func (m *model) check(t *testing.T, w *world) {
	t.Helper()
	list, owners, counts := m.list(t, w), m.owners(), map[string]int{}
	for i := range list {
		fe := &list[i]
		at, name := placeOf(fe), serviceOf(fe.Name)
		svc := m.services[name]
		if svc == nil || !w.bounded() && owners[at].svc != svc {
			t.Fatalf("%s has %s, which belongs to %v\n%s", fe.Name, at, owners[at].svc, m)
		}
		m.checkEndpoints(t, fe)
		counts[name.String()]++
		counts[name.Namespace]++
	}
	if !w.bounded() && len(list) != len(owners) {
		t.Fatalf("the kernel has %d of %d frontends: %+v\n%s", len(list), len(owners), list, m)
	}
	checkBudgets(t, w, counts, list)
}

func (m *model) list(t *testing.T, w *world) []inspect.FrontendStatus {
	t.Helper()
	got, err := w.rules.kernel.List(nil)
	if err != nil {
		t.Fatal(err)
	}
	return got.Frontends
}

func placeOf(fe *inspect.FrontendStatus) place {
	f := state.IPv4
	if fe.Family == program.IPv6 {
		f = state.IPv6
	}
	return place{f, fe.Addr, state.Protocol(fe.Protocol), fe.Port}
}

// serviceOf cuts the Service out of the name of a service port.
func serviceOf(name string) state.Name {
	service, _, _ := strings.Cut(name, ":")
	namespace, own, _ := strings.Cut(service, "/")
	return state.Name{Namespace: namespace, Name: own}
}

// trustIn returns the highest trust that a Service asks for a place with, or -1 if it does not ask.
func trustIn(svc *state.Service, at place) (trust int) {
	trust = -1
	wanted(svc, func(p place, n int) {
		if p == at && (trust < 0 || n < trust) {
			trust = n
		}
	})
	return trust
}

// bounded reports whether the budgets cut Services, so that who has a frontend depends on who came first.
func (w *world) bounded() bool { return w.settings.Budgets != config.Default().Budgets }

// checkEndpoints compares the pools of a frontend with the slices of its Service.
func (m *model) checkEndpoints(t *testing.T, fe *inspect.FrontendStatus) {
	t.Helper()
	own := map[netip.AddrPort]bool{}
	for _, sl := range m.slices[serviceOf(fe.Name)] {
		for _, p := range sl.Ports {
			for _, e := range sl.Endpoints {
				if strings.HasSuffix(fe.Name, ":"+p.Name) {
					own[netip.AddrPortFrom(e.Addr, p.Port)] = true
				}
			}
		}
	}
	for _, e := range slices.Concat(fe.Cluster, fe.Local) {
		if !own[e.Addr] || e.Addr.Addr().Is4() != (fe.Family == program.IPv4) {
			t.Fatalf("%s leads to %s, which is none of its endpoints\n%s", fe.Name, e.Addr, m)
		}
	}
}

// frontendText is a frontend at the beginning of an element, with an address or without.
var frontendText = regexp.MustCompile(`^(?:(\S+) \. )?(tcp|udp|sctp) \. (\d+)`)

// checkContent looks at each element that names a frontend or an address of one.
func (m *model) checkContent(t *testing.T, w *world) {
	t.Helper()
	served := map[place]holder{}
	for _, fe := range m.list(t, w) {
		svc, at := m.services[serviceOf(fe.Name)], placeOf(&fe)
		served[at] = holder{svc, trustIn(svc, at)}
	}
	for _, line := range w.rules.kernel.Lines() {
		if parts := frontendText.FindStringSubmatch(line.Text); parts != nil {
			is, ok := served[placeIn(line.Family, parts)]
			if !ok || is.trust < 0 || !m.mayHave(is, placeIn(line.Family, parts), line.Set) {
				t.Fatalf("%v: the frontend has trust %d (served: %t)\n%s", line, is.trust, ok, m)
			}
		}
		if line.Set == "cluster-ips" && (!anyAt(served, line.Text) || slices.Contains(m.nodeAddrs, netip.MustParseAddr(line.Text))) {
			t.Fatalf("%v: no Service has the address alone\n%s", line, m)
		}
	}
	if i, err := w.rules.FindInterference(); err != nil || !i.Empty() {
		t.Fatalf("in the tables changed: %s, %v", &i, err)
	}
}

func placeIn(f program.Family, parts []string) place {
	at := place{family: state.IPv4}
	if f == program.IPv6 {
		at.family = state.IPv6
	}
	if parts[1] != "" {
		at.addr = netip.MustParseAddr(parts[1])
	}
	at.protocol = map[string]state.Protocol{"tcp": state.TCP, "udp": state.UDP, "sctp": state.SCTP}[parts[2]]
	port, _ := strconv.ParseUint(parts[3], 10, 16) // the kernel writes numbers
	at.port = uint16(port)
	return at
}

// mayHave reports whether a frontend may be in a set.
func (m *model) mayHave(is holder, at place, set string) bool {
	switch {
	case strings.HasPrefix(set, "masquerade-"):
		return is.trust > 0 || slices.Contains(m.nodeAddrs, at.addr)
	case set == "firewalled":
		return is.trust == 2 && (len(is.svc.SourceRanges) > 0 || is.svc.NoSource)
	}
	return true
}

func anyAt(served map[place]holder, text string) bool {
	for at, is := range served {
		if is.trust == 0 && at.addr.String() == text {
			return true
		}
	}
	return false
}

// elements counts the endpoints of pools, and how many pools there are, by Service and by namespace.
func elements(list []inspect.FrontendStatus) (endpoints, pools map[string]int) {
	endpoints, pools = map[string]int{}, map[string]int{}
	type pool struct {
		family program.Family
		name   string
		local  bool
	}
	seen := map[pool]bool{}
	for i := range list {
		fe := &list[i]
		name := serviceOf(fe.Name)
		for local, members := range map[bool][]inspect.EndpointStatus{false: fe.Cluster, true: fe.Local} {
			if is := (pool{fe.Family, fe.Name, local}); len(members) > 0 && !seen[is] {
				seen[is] = true
				for _, of := range []string{name.String(), name.Namespace} {
					endpoints[of] += len(members)
					pools[of]++
				}
			}
		}
	}
	return endpoints, pools
}

// checkBudgets compares what the kernel has with the budgets. Each pool may have one endpoint whatever the budget says.
func checkBudgets(t *testing.T, w *world, frontends map[string]int, list []inspect.FrontendStatus) {
	t.Helper()
	endpoints, pools := elements(list)
	b := w.settings.Budgets
	for of, n := range frontends {
		maxFrontends, maxElements := b.NamespaceFrontends, b.NamespaceElements
		if strings.Contains(of, "/") {
			maxFrontends, maxElements = b.ServiceFrontends, b.ServiceElements
		}
		if n > maxFrontends || endpoints[of] > maxElements+pools[of] {
			t.Fatalf("%s has %d frontends and %d endpoints in %d pools; the budget is %+v", of, n, endpoints[of], pools[of], b)
		}
	}
}
