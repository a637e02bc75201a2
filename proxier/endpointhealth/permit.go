package endpointhealth

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options configure a Monitor. The functions are called from its goroutines, and may block.
type Options struct {
	Settings *config.Settings
	Store    *state.Store
	// Default is the check of Services that ask for none; nil: no check.
	Default *state.HealthCheck
	// APIServers are never asked, like those that the store knows.
	APIServers []netip.AddrPort
	// Suspicions reads what the kernel noticed lately, with refusing endpoints or without. It is not called if the
	// settings turn the detection off.
	Suspicions func(refusing bool) ([]Suspicion, error)
	// Ask asks an endpoint, and Cost says how much processor time that takes. Used is how much this process used; nil: unknown.
	Ask  func(context.Context, *probe.Question) probe.Answer
	Cost func(state.CheckKind) time.Duration
	Used func() time.Duration
	// Pays is called with the processor time of questions that a namespace causes; nil: nobody asks.
	Pays   func(namespace string, took time.Duration)
	Memory Memory // nil: failures are forgotten when the process ends
	// Report is called with what happened. It must not block.
	Report func(Report)
	// MayWrite reports whether a line about a namespace may be logged.
	MayWrite func(namespace string, now time.Time) bool
	Log      *slog.Logger
}

// Suspicion is an endpoint that the kernel noticed.
type Suspicion = serviceport.Suspicion

// Remembered is a failure that outlives the process, so that a restart brings no failed endpoint back.
type Remembered struct {
	Service state.Name
	Failure state.Failure
}

// Memory keeps failures while no process runs.
type Memory interface {
	Load() ([]Remembered, error)
	Save([]Remembered) error
}

// permit says whom this node may ask. Who writes a Service could otherwise have the node ask its own programs, an API
// server, or the server of a cloud that knows its secrets: these trust the address of the node. Any goroutine may call the methods.
type permit struct {
	*Options
	excluded []netip.Prefix

	// Rules of this node send packets to external IPs and the like elsewhere. A tenant could write one, have an endpoint there
	// checked, and so have this node ask whom it must not ask.
	mu     sync.Mutex
	served map[state.Name][]span
	uses   map[span]use
	sweeps bool                  // a sweep is due
	ranges map[netip.Addr][]span // those of uses with several ports
	node   []netip.Addr          // addresses of the latest Node object: one that is deleted does not take them along
}

// use is how often a span is in served, and when it was there less often than before, in Unix time.
type use struct{ n, left uint32 }

// span are ports of an address, from the first to the last.
type span struct {
	first netip.AddrPort
	last  uint16
}

// maxRanges is how many ranges of an address are looked at. Beyond, all its ports count as served: a tenant can have thousands.
const maxRanges = 64

// lingering is how long the kernel may have what was removed. It is forgotten after this time or twice as long.
const lingering = 10 * time.Second

// refuses reports whether an endpoint must not be asked.
func (p *permit) refuses(at netip.AddrPort) bool {
	return slices.ContainsFunc(hosts(at.Addr().Unmap()), func(a netip.Addr) bool {
		return p.refusesAddress(netip.AddrPortFrom(a, at.Port()))
	})
}

func (p *permit) refusesAddress(at netip.AddrPort) bool {
	a, env := at.Addr(), p.Store.Environment()
	switch {
	case !a.IsGlobalUnicast() && !a.IsLoopback() && !a.IsLinkLocalUnicast(), // multicast, unspecified
		contains(p.excluded, a), contains(env.ServiceCIDRs, a),
		p.isServer(&env, func(s netip.AddrPort) bool { return s == at }):
		return true
	case p.Settings.Manifests != "":
		// The node may ask nodes' addresses, because one administrator writes everything (a folder of manifests). An EndpointSlice of
		// the API may have any address in it, and nothing shows that a pod on the host's network is there.
		return false
	}
	return p.translates(at) || slices.Contains(env.HostAddresses, a) || p.isNode(&env, a) ||
		p.isServer(&env, func(s netip.AddrPort) bool { return s.Addr() == a })
}

// isNode reports whether the Node object has an address, or had it.
func (p *permit) isNode(env *state.Environment, a netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.noteNode(env)
	return slices.Contains(p.node, a)
}

// noteNode keeps the addresses of the Node object. The caller holds mu.
func (p *permit) noteNode(env *state.Environment) {
	if env.Node != nil {
		p.node = env.Node.Addresses
	}
}

func contains(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// isServer reports whether an API server is at an address.
func (p *permit) isServer(env *state.Environment, at func(netip.AddrPort) bool) bool {
	return slices.ContainsFunc(env.APIServers, at) || slices.ContainsFunc(p.APIServers, at) || slices.ContainsFunc(env.Connected, at)
}

// serves notes where a Service is about to be served. Node ports and cluster IPs are known by their addresses.
func (p *permit) serves(svc *plan.Service) {
	var list []span
	env := p.Store.Environment()
	ranges := env.ServiceCIDRs
	for i := range svc.Ports {
		for j := range svc.Ports[i].Frontends {
			if f := &svc.Ports[i].Frontends[j]; f.Addr.IsValid() && !contains(ranges, f.Addr) {
				list = append(list, span{netip.AddrPortFrom(f.Addr, f.Port), max(f.Port, f.EndPort)})
			}
		}
	}
	p.mu.Lock()
	p.noteNode(&env)
	p.mu.Unlock()
	p.serve(svc.Name, list)
}

// serve records where a Service is served; nothing: it is gone.
func (p *permit) serve(name state.Name, list []span) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.served[name]
	if slices.Equal(before, list) {
		return
	}
	for _, s := range list {
		u, known := p.uses[s]
		if !known && s.last > s.first.Port() {
			p.ranges[s.first.Addr()] = append(p.ranges[s.first.Addr()], s)
		}
		p.uses[s] = use{u.n + 1, u.left}
	}
	for _, s := range before { // what stays has been counted again
		p.uses[s] = use{p.uses[s].n - 1, uint32(time.Now().Unix())}
	}
	if p.served[name] = list; len(list) == 0 {
		delete(p.served, name)
	}
	if len(before) > 0 && !p.sweeps {
		p.sweeps = true
		time.AfterFunc(lingering, p.sweep)
	}
}

// sweep forgets what is served no more for a while. However often something comes and goes, it lingers once.
func (p *permit) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sweeps = false
	gone, now := map[netip.Addr]bool{}, uint32(time.Now().Unix()) // addresses of ranges
	for s, u := range p.uses {
		switch {
		case u.n > 0:
		case now-u.left <= uint32(lingering/time.Second):
			p.sweeps = true
		default:
			if delete(p.uses, s); s.last > s.first.Port() {
				gone[s.first.Addr()] = true
			}
		}
	}
	for a := range gone {
		out := func(s span) bool { _, known := p.uses[s]; return !known }
		if p.ranges[a] = slices.DeleteFunc(p.ranges[a], out); len(p.ranges[a]) == 0 {
			delete(p.ranges, a)
		}
	}
	if p.sweeps {
		time.AfterFunc(lingering, p.sweep)
	}
}

// translates reports whether a Service is served at an address and port.
func (p *permit) translates(at netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	ranges := p.ranges[at.Addr()]
	_, known := p.uses[span{at, at.Port()}]
	return known || len(ranges) > maxRanges || slices.ContainsFunc(ranges, func(s span) bool {
		return s.first.Port() <= at.Port() && at.Port() <= s.last
	})
}

// embeddings are ranges of IPv6 whose packets go on to an address of IPv4, and which bytes of the address are that one. In the
// local range for translators, a network can have a prefix of any of the lengths of RFC 6052.
var embeddings = [...]struct {
	prefix netip.Prefix
	bytes  [4]int
}{
	{netip.MustParsePrefix("::/96"), [4]int{12, 13, 14, 15}},           // automatic tunnels
	{netip.MustParsePrefix("::ffff:0:0:0/96"), [4]int{12, 13, 14, 15}}, // SIIT
	{netip.MustParsePrefix("64:ff9b::/96"), [4]int{12, 13, 14, 15}},    // NAT64
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{12, 13, 14, 15}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{9, 10, 11, 12}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{7, 9, 10, 11}},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}},
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}}, // 6to4
}

// hosts are an address, and those of IPv4 to which packets to an address of IPv6 may go on.
func hosts(a netip.Addr) []netip.Addr {
	list, all := []netip.Addr{a}, a.As16()
	for i := range embeddings {
		e := &embeddings[i]
		of := netip.AddrFrom4([4]byte{all[e.bytes[0]], all[e.bytes[1]], all[e.bytes[2]], all[e.bytes[3]]})
		if e.prefix.Contains(a) && !of.IsUnspecified() { // all zero: it has the address at other bytes
			list = append(list, of)
		}
	}
	return list
}

// detects reports whether anybody looks for endpoints that do not answer clients.
func (o *Options) detects() bool { return o.Settings.OutlierDetection != config.OutlierOff }

// ejects reports whether failed endpoints of a Service get no connections. Endpoints of the cluster's own Services are ejected
// only if the Service itself asks for it: DNS and the API server are what everything else needs.
func (o *Options) ejects(svc *state.Service) bool {
	asked := svc.Outliers.Mode
	if asked == state.OutlierDefault && o.Settings.OutlierDetection == config.OutlierEject && !svc.OfCluster() {
		asked = state.OutlierEject
	}
	return o.detects() && asked == state.OutlierEject
}

// checkOf returns the check of a Service; nil: none. Those of the cluster itself are checked only if they ask for it.
func (o *Options) checkOf(svc *state.Service) *state.HealthCheck {
	check := svc.Check
	if check == nil && !svc.OfCluster() {
		check = o.Default
	}
	if check == nil || check.Kind == state.CheckOff || !o.Settings.ActiveChecks {
		return nil
	}
	return check
}

// ignored is for a Service whose annotations have no effect, because a flag turns everything off.
func (o *Options) ignored(svc *state.Service) (problems []state.Problem) {
	if mode := svc.Outliers.Mode; !o.detects() && (mode == state.OutlierObserve || mode == state.OutlierEject) {
		problems = append(problems, problem(svc.Name, "outlier-detection", "--outlier-detection=off on this node: the annotation has no effect"))
	}
	if svc.Check != nil && svc.Check.Kind != state.CheckOff && !o.Settings.ActiveChecks {
		problems = append(problems, problem(svc.Name, "health-check", "--active-checks=false on this node: the annotation has no effect"))
	}
	return problems
}

func problem(name state.Name, annotation, reason string) state.Problem {
	return state.Problem{
		Kind: "Service", Object: name, Field: state.AnnotationField(state.AnnotationPrefix + annotation), Reason: reason,
	}
}

// notAsked describes endpoints that are not checked, without what this node knows about their addresses: tenants read it.
func notAsked(name state.Name, excluded, left int) (problems []state.Problem) {
	add := func(n int, why string) {
		if n > 0 {
			problems = append(problems, problem(name, "health-check", fmt.Sprintf("%d endpoints are not checked and count as good: %s", n, why)))
		}
	}
	add(excluded, "this node does not ask their addresses")
	add(left, "this node makes no more checks, or no more of this Service or namespace")
	return problems
}

// Questions cost processor time of this node. What they may cost in a second is bounded for the node and for a namespace;
// what comes beyond that is late.
const (
	// maxChecks is how many active checks there are on a node, and maxTracked how many endpoints of Services are under suspicion. One
	// namespace can have a quarter of what others leave.
	maxChecks  = 20_000
	maxTracked = 16_384
	// maxAsking and maxQuestions are how many endpoints are being asked, and how many of those under suspicion: each is a flow in the
	// table of connections.
	maxAsking    = 512
	maxQuestions = 32
	// looksAtOnce is how many endpoints are looked at in each noticePeriod, and lookAgain when one is looked at that did not answer.
	looksAtOnce = 10
	lookAgain   = 5 * time.Second
	// maxLooks is how many there are. Each takes 900 bytes, and a tenant can have a million endpoints. The others count as reached.
	maxLooks = 1 << 17
	// rateBurst is how long a rate may be saved up.
	rateBurst = time.Second
	// Questions that suspicions cause have a rate of their own for each namespace: neither do they make checks late, nor the
	// other way round. When a node dies, many are asked at once. All namespaces together have doubtRate for them.
	doubtRate  = 0.1 // of a processor
	doubtBurst = 10 * time.Second
)

// termsOf protects the tenants of a cluster from each other, and nodes from all of them. A machine that reads a folder has no
// tenants, but one administrator whose checks are a part of its work; his balancers may all be in one namespace.
func termsOf(o *Options) checks.AllTerms {
	node, tenant, doubtful, parts := 0.1, 0.05, 0.02, 2 // of a processor; and of the room that others leave
	if o.Settings.Manifests != "" {
		node, tenant, doubtful, parts = 0.5, 0.5, doubtRate, 1
	}
	doubts, rates := schedule.NewRates(doubtRate, doubtful, doubtBurst), schedule.NewRates(node, tenant, rateBurst)
	doubts.Pays, rates.Pays = o.Pays, o.Pays
	doubts.Even = true // an endpoint that failed must be noticed, however many tenants have others suspected
	look := func(state.CheckKind) time.Duration { return noticePeriod / looksAtOnce }
	terms := func(size, asking, parts int, r *schedule.Rates, cost func(state.CheckKind) time.Duration) *checks.Terms {
		return &checks.Terms{Lane: schedule.Lane{Asking: schedule.NewRoom(asking, min(parts, 2)), Rates: r}, Room: schedule.NewRoom(size, parts), Cost: cost}
	}
	return checks.AllTerms{
		checks.Look:      terms(maxLooks, maxAsking, 2, schedule.NewRates(1, 1, noticePeriod), look),
		checks.Active:    terms(maxChecks, maxAsking, parts, rates, (&price{Options: o, times: 1, most: mostUsed * node}).of),
		checks.Suspicion: terms(maxTracked, maxQuestions, 4, doubts, o.Cost),
	}
}

const (
	// checks and all that follows from them are slowed down while the process uses more than this part of what checks may use.
	mostUsed   = 0.8
	pricePause = time.Second
	// dearest bounds it, because the process has other work as well: passes of others must not end the checks.
	dearest = 8
)

// price is what questions are said to cost. How much they cost really differs between nodes, and with what their answers
// cause: a check that flaps has its Service planned again. So the price rises while the process uses much.
type price struct {
	*Options
	times  float64
	most   float64 // of a processor
	at     time.Time
	before time.Duration
}

func (p *price) of(k state.CheckKind) time.Duration {
	p.correct(time.Now())
	return time.Duration(float64(p.Cost(k)) * p.times)
}

// correct looks at what the process used lately.
func (p *price) correct(now time.Time) {
	if p.Used == nil || now.Sub(p.at) < pricePause {
		return
	}
	used := p.Used()
	if share := float64(used-p.before) / float64(now.Sub(p.at)); !p.at.IsZero() {
		p.times = min(max(1, p.times*share/p.most), dearest)
	}
	p.at, p.before = now, used
}
