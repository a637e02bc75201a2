package dataplane

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
)

// weightedPort has endpoints of weights 1 and 3.
func weightedPort() *plan.Port {
	list := []serviceport.Endpoint{
		{Addr: netip.MustParseAddrPort("10.0.1.1:8080"), Weight: 1}, {Addr: netip.MustParseAddrPort("10.0.1.2:8080"), Weight: 3},
	}
	return &plan.Port{Cluster: list, Frontends: []plan.Frontend{at(plan.ClusterIP, "10.96.0.1", serviceport.ClusterPool)}}
}

// TestRules: how nft serves a port, by what the plan says.
func TestRules(t *testing.T) {
	first, second := netip.MustParseAddr("10.0.1.1"), netip.MustParseAddr("10.0.1.2")
	type served struct {
		method program.Method
		slots  [2]uint16
		addrs  [2]netip.AddrPort
		fast   bool
	}
	ports := [2]netip.AddrPort{netip.AddrPortFrom(first, 8080), netip.AddrPortFrom(second, 8080)}
	for name, tt := range map[string]struct {
		change func(*plan.Port)
		want   served
	}{
		"weights":       {func(*plan.Port) {}, served{program.SourceHash, [2]uint16{1, 3}, ports, true}},
		"without room":  {func(p *plan.Port) { p.Plain = true }, served{program.Random, [2]uint16{}, ports, true}},
		"a slow path":   {func(p *plan.Port) { p.SlowPath = "somebody asked for it" }, served{program.SourceHash, [2]uint16{1, 3}, ports, false}},
		"equal weights": {func(p *plan.Port) { p.Cluster[0].Weight = 3 }, served{program.SourceHash, [2]uint16{}, ports, true}},
		"a range of ports": {func(p *plan.Port) { p.Frontends[0].EndPort = 90 }, served{
			program.SourceHash, [2]uint16{1, 3}, [2]netip.AddrPort{netip.AddrPortFrom(first, 0), netip.AddrPortFrom(second, 0)}, true,
		}},
	} {
		p := weightedPort()
		tt.change(p)
		out := rules(p, &method{nft: program.SourceHash})
		got := served{method: out.Method, fast: out.Frontends[0].FastPath}
		for i, e := range out.Cluster {
			got.slots[i], got.addrs[i] = e.Slots, e.Addr
		}
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
		if e := p.Cluster[0]; e.Slots != 0 || e.Addr != ports[0] {
			t.Errorf("%s: the plan itself has changed: %+v", name, e)
		}
	}
}

// TestDropUnusedPools: a pool stays as long as one frontend of nft leads to it.
func TestDropUnusedPools(t *testing.T) {
	list := weightedPort().Cluster
	leads := func(pools ...serviceport.Pool) (f []contents.Frontend) {
		for _, pool := range pools {
			f = append(f, contents.Frontend{Pool: pool})
		}
		return f
	}
	byIPVS := leads(program.BySource)
	byIPVS[0].IPVS = true
	for name, tt := range map[string]struct {
		frontends      []contents.Frontend
		cluster, local bool
	}{
		"nobody":         {leads(program.NoPool), false, false},
		"cluster":        {leads(program.ClusterPool, program.NoPool), true, false},
		"local":          {leads(program.LocalPool, program.NoPool), false, true},
		"both":           {leads(program.LocalPool, program.ClusterPool, program.NoPool), true, true},
		"by source":      {leads(program.BySource, program.NoPool), true, true},
		"IPVS has local": {byIPVS, true, false},
	} {
		p := &contents.Port{Frontends: tt.frontends, Cluster: list, Local: list}
		dropUnusedPools(p)
		if diff := cmp.Diff([]bool{tt.cluster, tt.local}, []bool{p.Cluster != nil, p.Local != nil}); diff != "" {
			t.Errorf("%s: the pools that stay, cluster and local (- want, + got):\n%s", name, diff)
		}
	}
}
