package main

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// recorder keeps what the loop would hand to the nft engine.
type recorder struct {
	ports   map[string]*nft.Port
	globals nft.Globals
}

func (r *recorder) Set(p *nft.Port) error {
	kept := *p
	kept.Cluster, kept.Local = slices.Clone(p.Cluster), slices.Clone(p.Local) // the loop uses the lists again
	r.ports[p.Family.String()+" "+p.Name] = &kept
	return nil
}

func (r *recorder) Delete(f nft.Family, name string) { delete(r.ports, f.String()+" "+name) }
func (r *recorder) SetGlobals(g nft.Globals)         { r.globals = g }
func (r *recorder) Apply() (nft.Result, error)       { return nft.Result{}, nil }
func (r *recorder) Intact() (bool, error)            { return true, nil }

func (r *recorder) Guard([]netip.Addr) (bool, error) { return true, nil }
func (r *recorder) Unguard([]netip.Addr)             {}

// sorted lists the ports in a fixed order, so that two renderings of the same objects are equal.
func (r *recorder) sorted() []nft.Port {
	var out []nft.Port
	for _, key := range slices.Sorted(maps.Keys(r.ports)) {
		out = append(out, *r.ports[key])
	}
	return out
}

// render prints the tables that result. Guarded addresses are those that IPVS serves.
func (r *recorder) render(guarded []netip.Addr) (string, error) {
	m := nft.OpenMemory(nft.Options{})
	m.SetGlobals(r.globals)
	for _, p := range r.sorted() {
		if err := m.Set(&p); err != nil {
			return "", err
		}
	}
	if _, err := m.Guard(guarded); err != nil {
		return "", err
	}
	_, err := m.Apply()
	return m.String(), err
}

// virtualServers keeps what the loop would hand to the IPVS engine.
type virtualServers struct {
	ports   map[string][]ipvsctl.VirtualServer
	exclude []netip.Prefix
}

func (v *virtualServers) Set(name string, servers []ipvsctl.VirtualServer) error {
	v.ports[name] = servers
	return nil
}

func (v *virtualServers) Delete(name string)                       { delete(v.ports, name) }
func (v *virtualServers) Intact() (bool, error)                    { return true, nil }
func (v *virtualServers) Coming() []netip.Addr                     { return nil }
func (v *virtualServers) Add(time.Time) (ipvsctl.Result, error)    { return ipvsctl.Result{}, nil }
func (v *virtualServers) Remove(time.Time) (ipvsctl.Result, error) { return ipvsctl.Result{}, nil }
func (v *virtualServers) Tick(time.Time) (ipvsctl.Result, error)   { return ipvsctl.Result{}, nil }

func (v *virtualServers) Obstacle(servers []ipvsctl.VirtualServer) error {
	for _, s := range servers {
		if slices.ContainsFunc(v.exclude, func(p netip.Prefix) bool { return p.Contains(s.Addr) }) {
			return &ipvsctl.KeyError{Key: s.Key, Err: ipvsctl.ErrExcluded}
		}
	}
	return nil
}

// sorted lists the virtual servers in a fixed order, and the addresses that are to be local.
func (v *virtualServers) sorted() (list []ipvsctl.VirtualServer, local []netip.Addr) {
	for _, name := range slices.Sorted(maps.Keys(v.ports)) {
		for _, server := range v.ports[name] {
			list = append(list, server)
			if server.Local && !slices.Contains(local, server.Addr) {
				local = append(local, server.Addr)
			}
		}
	}
	return list, local
}

// noFlows leaves connection tracking alone.
type noFlows struct{}

func (noFlows) Clean(conntrack.Stale, []netip.Addr) ([]conntrack.Result, error) { return nil, nil }

// silent observes nothing: problems are logged by the loop itself.
type silent struct{}

func (silent) Pending(time.Time)               {}
func (silent) PassDone(proxier.PassReport)     {}
func (silent) FlowsCleaned([]conntrack.Result) {}
func (silent) Problems([]state.Problem)        {}
