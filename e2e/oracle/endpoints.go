package oracle

import (
	"net/netip"
	"slices"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// endpoint is an endpoint of a Service port.
type endpoint struct {
	at              netip.AddrPort
	ready, draining bool
	local           bool
	backup, bad     bool
	hints           state.Hints
}

// endpoints lists the endpoints of a port in a family that can get new connections. One of weight 0 cannot, and one in the range of
// Services either.
func (c *Cluster) endpoints(svc *state.Service, port *state.ServicePort, v4 bool) (list []endpoint) {
	for _, sl := range c.Slices {
		if sl.Service != svc.Name || (sl.Family == state.IPv4) != v4 || sl.Weight == 0 {
			continue
		}
		i := slices.IndexFunc(sl.Ports, func(p state.SlicePort) bool { return p.Name == port.Name && p.Protocol == port.Protocol })
		if i < 0 {
			continue
		}
		for _, e := range sl.Endpoints {
			at := netip.AddrPortFrom(e.Addr, sl.Ports[i].Port)
			is := endpoint{
				at: at, ready: e.Ready, draining: !e.Ready && e.Serving && e.Terminating, local: e.Node == c.Node,
				backup: sl.Backup, bad: c.failed(svc, port, at),
			}
			if e.Hints != nil {
				is.hints = *e.Hints
			}
			inRange := slices.ContainsFunc(c.ServiceCIDRs, func(r netip.Prefix) bool { return r.Contains(e.Addr) })
			if !inRange && (is.ready || is.draining) {
				list = append(list, is)
			}
		}
	}
	return list
}

func (c *Cluster) failed(svc *state.Service, port *state.ServicePort, at netip.AddrPort) bool {
	return slices.ContainsFunc(c.Failed[svc.Name], func(f state.Failure) bool { return f.At == at && f.Protocol == port.Protocol })
}

func only(list []endpoint, keep func(endpoint) bool) (out []endpoint) {
	for _, e := range list {
		if keep(e) {
			out = append(out, e)
		}
	}
	return out
}

func isReady(e endpoint) bool    { return e.ready }
func isDraining(e endpoint) bool { return e.draining }
func isGood(e endpoint) bool     { return !e.bad }
func isBackup(e endpoint) bool   { return e.backup }
func isPrimary(e endpoint) bool  { return !e.backup }

// usable lists the endpoints that get connections, of all or of those on this node: ready before terminating ones, good before
// bad ones, others before backups, near before far ones.
func (c *Cluster) usable(svc *state.Service, all []endpoint, localOnly bool) []endpoint {
	scope := all
	if localOnly {
		scope = only(all, func(e endpoint) bool { return e.local })
	}
	narrow := func(list []endpoint) []endpoint {
		if localOnly || len(list) == 0 || !list[0].ready {
			return list
		}
		return c.near(only(all, isReady), list)
	}
	ready, draining := only(scope, isReady), only(scope, isDraining)
	first := func(order []func(endpoint) bool, states ...[]endpoint) []endpoint {
		for _, state := range states {
			for _, kind := range order {
				if list := only(state, kind); len(list) > 0 {
					return narrow(list)
				}
			}
		}
		return nil
	}
	order := []func(endpoint) bool{isPrimary, isBackup}
	if good := first(order, only(ready, isGood), only(draining, isGood)); good != nil {
		return good
	}
	switch svc.AllDown { // nobody is good
	case state.RefuseAll:
		return nil
	case state.BackupOnly:
		slices.Reverse(order)
	}
	return first(order, ready, draining)
}

// near narrows a list by topology hints. Hints count if each ready endpoint has them, and one of these is for this node, or
// zone. When nobody of the list is near, all of it is used.
func (c *Cluster) near(ready, list []endpoint) []endpoint {
	forNode := func(e endpoint) []string { return e.hints.Nodes }
	forZone := func(e endpoint) []string { return e.hints.Zones }
	for _, level := range []struct {
		names func(endpoint) []string
		own   string
	}{{forNode, c.Node}, {forZone, c.Zone}} {
		count := true
		for _, e := range ready {
			count = count && len(level.names(e)) > 0
		}
		here := only(list, func(e endpoint) bool { return slices.Contains(level.names(e), level.own) })
		if count && level.own != "" && len(here) > 0 {
			return here
		}
	}
	return list
}

func addresses(list []endpoint) (out []netip.AddrPort) {
	for _, e := range list {
		out = append(out, e.at)
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return slices.Compact(out)
}
