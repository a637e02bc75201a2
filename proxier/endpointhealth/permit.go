package endpointhealth

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// permit says whom this node may ask. Who writes a Service could otherwise have the node ask its own programs, an API
// server, or the server of a cloud that knows its secrets: these trust the address of the node.
type permit struct {
	store    *state.Store
	excluded []netip.Prefix
	servers  []netip.AddrPort // API servers, as the configuration names them
	// own: the node may ask its own addresses, because one administrator writes everything (a folder of manifests). An
	// EndpointSlice of the API may have any address in it, and nothing shows that a pod on the host's network is there.
	own bool
}

func newPermit(o *Options) permit {
	return permit{
		store: o.Store, excluded: config.Prefixes(o.Settings.HealthCheckExclude), servers: o.APIServers, own: o.Settings.Manifests != "",
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
	case !p.own && slices.Contains(env.HostAddresses, a):
		return "it is an address of this node"
	}
	return ""
}
