package endpointhealth

import (
	"iter"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// permit says whom this node may ask. Who writes a Service could otherwise have the node ask its own programs, an API
// server, or the server of a cloud that knows its secrets: these trust the address of the node. Any goroutine may call the methods.
type permit struct {
	store    *state.Store
	excluded []netip.Prefix
	servers  []netip.AddrPort // API servers, as the configuration names them
	// own: the node may ask nodes' addresses, because one administrator writes everything (a folder of manifests). An
	// EndpointSlice of the API may have any address in it, and nothing shows that a pod on the host's network is there.
	own bool

	// Rules of this node send packets to external IPs and the like elsewhere. A tenant could write one, have an endpoint there
	// checked, and so have this node ask whom it must not ask.
	mu     sync.Mutex
	served map[state.Name][]netip.AddrPort
	uses   map[netip.AddrPort]int // how often it is in served, or was there lately
}

// lingering is how long the kernel may have what was removed.
const lingering = 10 * time.Second

func newPermit(store *state.Store, s *config.Settings, servers []netip.AddrPort) *permit {
	return &permit{
		store: store, excluded: config.Prefixes(s.HealthCheckExclude), servers: servers, own: s.Manifests != "",
		served: map[state.Name][]netip.AddrPort{}, uses: map[netip.AddrPort]int{},
	}
}

// refuses reports whether an endpoint must not be asked. An address of IPv6 can lead to one of IPv4.
func (p *permit) refuses(at netip.AddrPort) bool {
	at = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
	if p.refusesAddress(at) {
		return true
	}
	if at.Addr().Is6() {
		for a := range embedded(at.Addr()) {
			if p.refusesAddress(netip.AddrPortFrom(a, at.Port())) {
				return true
			}
		}
	}
	return false
}

func (p *permit) refusesAddress(at netip.AddrPort) bool {
	a, env := at.Addr(), p.store.Environment()
	switch {
	case !a.IsGlobalUnicast() && !a.IsLoopback() && !a.IsLinkLocalUnicast(), // multicast, unspecified
		contains(p.excluded, a), contains(env.ServiceCIDRs, a),
		p.isServer(&env, func(s netip.AddrPort) bool { return s == at }):
		return true
	case p.own:
		return false
	}
	return p.translates(at) || slices.Contains(env.HostAddresses, a) || env.Node != nil && slices.Contains(env.Node.Addresses, a) ||
		p.isServer(&env, func(s netip.AddrPort) bool { return s.Addr() == a })
}

func contains(ranges []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
}

// isServer reports whether an API server is at an address.
func (p *permit) isServer(env *state.Environment, at func(netip.AddrPort) bool) bool {
	return slices.ContainsFunc(env.APIServers, at) || slices.ContainsFunc(p.servers, at) || slices.ContainsFunc(env.Connected, at)
}

// serves notes where a Service is about to be served. Node ports and cluster IPs are known by their addresses.
func (p *permit) serves(svc *plan.Service) {
	var list []netip.AddrPort
	ranges := p.store.Environment().ServiceCIDRs
	for i := range svc.Ports {
		for j := range svc.Ports[i].Frontends {
			if f := &svc.Ports[i].Frontends[j]; f.Addr.IsValid() && !contains(ranges, f.Addr) {
				list = append(list, netip.AddrPortFrom(f.Addr, f.Port))
			}
		}
	}
	p.serve(svc.Name, list)
}

// serve records where a Service is served; nothing: it is gone.
func (p *permit) serve(name state.Name, list []netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.served[name]
	if slices.Equal(before, list) {
		return
	}
	for _, at := range list {
		p.uses[at]++
	}
	if p.served[name] = list; len(list) == 0 {
		delete(p.served, name)
	}
	if len(before) > 0 {
		time.AfterFunc(lingering, func() { p.forget(before) })
	}
}

func (p *permit) forget(list []netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range list {
		if p.uses[at]--; p.uses[at] == 0 {
			delete(p.uses, at)
		}
	}
}

// translates reports whether a Service is served at an address and port.
func (p *permit) translates(at netip.AddrPort) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.uses[at] > 0
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

// embedded yields the addresses of IPv4 to which packets to an address of IPv6 may go on.
func embedded(a netip.Addr) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		all := a.As16()
		for i := range embeddings {
			e := &embeddings[i]
			of := netip.AddrFrom4([4]byte{all[e.bytes[0]], all[e.bytes[1]], all[e.bytes[2]], all[e.bytes[3]]})
			if e.prefix.Contains(a) && !of.IsUnspecified() && !yield(of) { // all zero: it has the address at other bytes
				return
			}
		}
	}
}
