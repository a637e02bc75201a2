package endpointhealth

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// permit says whom this node may ask. Who writes a Service could otherwise have the node ask its own programs, an API
// server, or the server of a cloud that knows its secrets: these trust the address of the node.
type permit struct {
	store      *state.Store
	excluded   []netip.Prefix
	servers    []netip.AddrPort // API servers, as the configuration names them
	translated *translated
	// own: the node may ask nodes' addresses, because one administrator writes everything (a folder of manifests). An
	// EndpointSlice of the API may have any address in it, and nothing shows that a pod on the host's network is there.
	own bool
}

func newPermit(store *state.Store, s *config.Settings, servers []netip.AddrPort) *permit {
	return &permit{
		store: store, excluded: config.Prefixes(s.HealthCheckExclude), servers: servers, translated: newTranslated(), own: s.Manifests != "",
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
	return p.translated.has(at) || slices.Contains(env.HostAddresses, a) || env.Node != nil && slices.Contains(env.Node.Addresses, a) ||
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
	p.translated.set(svc.Name, list)
}

// Gone notes that a Service is no longer served.
func (p *permit) Gone(name state.Name) { p.translated.set(name, nil) }

// translated are addresses and ports from which rules of this node send packets elsewhere: external IPs and the like. A
// tenant could write one, have an endpoint there checked, and so have this node ask whom it must not ask. Any goroutine may call
// the methods.
type translated struct {
	mu   sync.Mutex
	of   map[state.Name][]netip.AddrPort
	uses map[netip.AddrPort]int // how often it is in of, or was there lately
}

// lingering is how long the kernel may have what was removed.
const lingering = 10 * time.Second

func newTranslated() *translated {
	return &translated{of: map[state.Name][]netip.AddrPort{}, uses: map[netip.AddrPort]int{}}
}

// set records where a Service is served; nothing: it is gone.
func (t *translated) set(name state.Name, list []netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.of[name]
	if slices.Equal(before, list) {
		return
	}
	for _, at := range list {
		t.uses[at]++
	}
	if t.of[name] = list; len(list) == 0 {
		delete(t.of, name)
	}
	if len(before) > 0 {
		time.AfterFunc(lingering, func() { t.forget(before) })
	}
}

func (t *translated) forget(list []netip.AddrPort) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range list {
		if t.uses[at]--; t.uses[at] == 0 {
			delete(t.uses, at)
		}
	}
}

func (t *translated) has(at netip.AddrPort) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.uses[at] > 0
}
