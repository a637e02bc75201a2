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
	// own: the node may ask its own addresses, because one administrator writes everything (a folder of manifests). An
	// EndpointSlice of the API may have any address in it, and nothing shows that a pod on the host's network is there.
	own bool
}

func newPermit(o *Options) permit {
	return permit{
		store: o.Store, excluded: config.Prefixes(o.Settings.HealthCheckExclude), servers: o.APIServers, translated: newTranslated(), own: o.Settings.Manifests != "",
	}
}

// refuses says why an endpoint is not asked; "": it may be asked.
func (p *permit) refuses(at netip.AddrPort) string {
	a, env := at.Addr(), p.store.Environment()
	in := func(ranges []netip.Prefix) bool {
		return slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(a) })
	}
	_, api := slices.BinarySearchFunc(env.APIServers, at, netip.AddrPort.Compare)
	switch {
	case !a.IsGlobalUnicast() && !a.IsLoopback() && !a.IsLinkLocalUnicast(): // multicast, unspecified
		return "it is not the address of one host"
	case in(p.excluded):
		return "--health-check-exclude-cidrs"
	case api, slices.Contains(p.servers, at), slices.Contains(env.Connected, at):
		return "it is an API server"
	case in(env.ServiceCIDRs):
		return "it is a cluster IP"
	case !p.own && p.translated.has(at, time.Now()):
		return "it is where a Service is served"
	case !p.own && slices.Contains(env.HostAddresses, a):
		return "it is an address of this node"
	}
	return ""
}

// translated are addresses and ports from which rules of this node send packets elsewhere: external IPs and the like. A
// tenant could write one, have an endpoint there checked, and so have this node ask whom it must not ask. Any goroutine may call
// the methods.
type translated struct {
	mu    sync.Mutex
	of    map[state.Name][]netip.AddrPort
	uses  map[netip.AddrPort]use
	swept time.Time
}

// use counts the Services at an address and port. Those that were removed still count for lingering: the kernel may have them.
type use struct {
	services int
	removed  time.Time
}

const lingering = 10 * time.Second

func newTranslated() *translated {
	return &translated{of: map[state.Name][]netip.AddrPort{}, uses: map[netip.AddrPort]use{}}
}

// set records where a Service is served; nothing: it is gone.
func (t *translated) set(name state.Name, list []netip.AddrPort, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, at := range list {
		u := t.uses[at]
		u.services++
		t.uses[at] = u
	}
	for _, at := range t.of[name] {
		u := t.uses[at]
		u.services, u.removed = u.services-1, now
		t.uses[at] = u
	}
	if t.of[name] = list; len(list) == 0 {
		delete(t.of, name)
	}
	if now.Sub(t.swept) < lingering {
		return
	}
	t.swept = now
	for at, u := range t.uses {
		if u.services == 0 && now.Sub(u.removed) >= lingering {
			delete(t.uses, at)
		}
	}
}

func (t *translated) has(at netip.AddrPort, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	u, found := t.uses[at]
	return found && (u.services > 0 || now.Sub(u.removed) < lingering)
}

// Serves notes where a Service is about to be served.
func (m *Monitor) Serves(p *plan.Service) {
	if m == nil {
		return
	}
	var list []netip.AddrPort
	ranges := m.Store.Environment().ServiceCIDRs
	for i := range p.Ports {
		for j := range p.Ports[i].Frontends {
			f := &p.Ports[i].Frontends[j]
			clusterIP := slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Contains(f.Addr) })
			if f.Addr.IsValid() && !clusterIP { // permit knows node ports and cluster IPs by their addresses
				list = append(list, netip.AddrPortFrom(f.Addr, f.Port))
			}
		}
	}
	m.permit.translated.set(p.Name, list, time.Now())
}
