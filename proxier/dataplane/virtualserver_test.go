package dataplane

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func reals(list ...string) (out []serviceport.Endpoint) {
	for _, a := range list {
		local := strings.HasPrefix(a, "here:")
		out = append(out, serviceport.Endpoint{Addr: netip.MustParseAddrPort(strings.TrimPrefix(a, "here:")), Weight: 1, Local: local})
	}
	return out
}

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

func at(kind plan.FrontendKind, addr string, policy serviceport.Pool) plan.Frontend {
	fe := plan.Frontend{Kind: kind, Frontend: serviceport.Frontend{Port: 80, Pool: policy, Masquerade: serviceport.MasqueradeAlways}}
	if kind == plan.NodePort {
		fe.Port = 30080
		return fe
	}
	fe.Addr = netip.MustParseAddr(addr)
	return fe
}

func unserved(fe plan.Frontend, how serviceport.Refusal) plan.Frontend {
	fe.Refusal = how
	return fe
}

// describe prints what both engines get.
func describe(p *contents.Port, servers []ipvsctl.VirtualServer) (out []string) {
	for _, fe := range p.Frontends {
		where := "node port"
		if fe.Addr.IsValid() {
			where = fe.Addr.String()
		}
		pool := [...]string{"none", "cluster", "local", "by source"}[fe.Pool]
		out = append(out, fmt.Sprintf("nft %s:%d pool=%s ipvs=%t refusal=%d", where, fe.Port, pool, fe.IPVS, fe.Refusal))
	}
	out = append(out, fmt.Sprintf("nft endpoints %d %d hairpin %v", len(p.Cluster), len(p.Local), p.Hairpin))
	for _, v := range servers {
		line := fmt.Sprintf("ipvs %s %s local=%t", v.Key, v.Scheduler, v.Local)
		for _, r := range v.RealServers {
			line += fmt.Sprintf(" %s=%d", r.Addr, r.Weight)
			if r.Forwarding != (wire.Forwarding{}) {
				line += r.Forwarding.Options()
			}
		}
		out = append(out, line)
	}
	return out
}

// TestSplit: what IPVS serves of a port, and what is left to nft.
func TestSplit(t *testing.T) {
	all, here := reals("10.0.0.1:8080", "here:10.0.1.1:8080"), reals("here:10.0.1.1:8080")
	tests := []struct {
		name string
		port plan.Port
		want string
	}{
		{"every kind, policy Cluster",
			plan.Port{Cluster: all, Frontends: []plan.Frontend{
				at(plan.ClusterIP, "10.96.0.1", serviceport.ClusterPool), at(plan.LoadBalancer, "192.168.7.1", serviceport.ClusterPool),
				at(plan.LoadBalancer, "203.0.113.1", serviceport.ClusterPool), at(plan.NodePort, "", serviceport.ClusterPool)}},
			`nft 10.96.0.1:80 pool=none ipvs=true refusal=0
			nft 192.168.7.1:80 pool=none ipvs=true refusal=0
			nft 203.0.113.1:80 pool=none ipvs=true refusal=0
			nft node port:30080 pool=none ipvs=true refusal=0
			nft 127.0.0.1:30080 pool=cluster ipvs=false refusal=0
			nft endpoints 2 0 hairpin [10.0.1.1]
			ipvs 10.96.0.1:80/tcp lc local=true 10.0.0.1:8080=1 10.0.1.1:8080=1
			ipvs 192.168.7.1:80/tcp lc local=false 10.0.0.1:8080=1 10.0.1.1:8080=1
			ipvs 203.0.113.1:80/tcp lc local=true 10.0.0.1:8080=1 10.0.1.1:8080=1
			ipvs 192.168.7.1:30080/tcp lc local=false 10.0.0.1:8080=1 10.0.1.1:8080=1`},
		{"no node port: nft has no endpoints",
			plan.Port{Cluster: all, Frontends: []plan.Frontend{at(plan.ClusterIP, "10.96.0.1", serviceport.ClusterPool)}},
			`nft 10.96.0.1:80 pool=none ipvs=true refusal=0
			nft endpoints 0 0 hairpin [10.0.1.1]
			ipvs 10.96.0.1:80/tcp lc local=true 10.0.0.1:8080=1 10.0.1.1:8080=1`},
		{"internal policy Local",
			plan.Port{Local: here, Frontends: []plan.Frontend{at(plan.ClusterIP, "10.96.0.1", serviceport.LocalPool)}},
			`nft 10.96.0.1:80 pool=none ipvs=true refusal=0
			nft endpoints 0 0 hairpin [10.0.1.1]
			ipvs 10.96.0.1:80/tcp lc local=true 10.0.1.1:8080=1`},
		{"external policy Local: pods and the node get all endpoints from nft",
			plan.Port{Cluster: all, Local: here, Frontends: []plan.Frontend{
				at(plan.LoadBalancer, "203.0.113.1", serviceport.BySource), at(plan.NodePort, "", serviceport.BySource)}},
			`nft 203.0.113.1:80 pool=by source ipvs=true refusal=0
			nft node port:30080 pool=by source ipvs=true refusal=0
			nft endpoints 2 0 hairpin [10.0.1.1]
			ipvs 203.0.113.1:80/tcp lc local=true 10.0.1.1:8080=1
			ipvs 192.168.7.1:30080/tcp lc local=false 10.0.1.1:8080=1`},
		{"external policy Local, no endpoint here",
			plan.Port{Cluster: all[:1], Frontends: []plan.Frontend{
				at(plan.ClusterIP, "10.96.0.1", serviceport.ClusterPool), unserved(at(plan.LoadBalancer, "203.0.113.1", serviceport.BySource), serviceport.Drop)}},
			`nft 10.96.0.1:80 pool=none ipvs=true refusal=0
			nft 203.0.113.1:80 pool=by source ipvs=false refusal=2
			nft endpoints 1 0 hairpin []
			ipvs 10.96.0.1:80/tcp lc local=true 10.0.0.1:8080=1`},
		{"external addresses that must not become local",
			plan.Port{Cluster: all, Frontends: []plan.Frontend{
				at(plan.ClusterIP, "10.96.0.1", serviceport.ClusterPool), at(plan.ExternalIP, "198.51.100.1", serviceport.ClusterPool),
				at(plan.ExternalIP, "192.168.7.1", serviceport.ClusterPool), at(plan.LoadBalancer, "192.168.7.9", serviceport.ClusterPool),
				at(plan.LoadBalancer, "203.0.113.1", serviceport.ClusterPool)}},
			`nft 10.96.0.1:80 pool=none ipvs=true refusal=0
			nft 198.51.100.1:80 pool=cluster ipvs=false refusal=0
			nft 192.168.7.1:80 pool=cluster ipvs=false refusal=0
			nft 192.168.7.9:80 pool=cluster ipvs=false refusal=0
			nft 203.0.113.1:80 pool=none ipvs=true refusal=0
			nft endpoints 2 0 hairpin [10.0.1.1]
			ipvs 10.96.0.1:80/tcp lc local=true 10.0.0.1:8080=1 10.0.1.1:8080=1
			ipvs 203.0.113.1:80/tcp lc local=true 10.0.0.1:8080=1 10.0.1.1:8080=1`},
		{"external policy Local, one address must not become local: nft serves all clients outside",
			plan.Port{Cluster: all, Local: here, Frontends: []plan.Frontend{
				at(plan.ClusterIP, "10.96.0.1", serviceport.ClusterPool), at(plan.LoadBalancer, "198.51.100.1", serviceport.BySource),
				at(plan.LoadBalancer, "203.0.113.1", serviceport.BySource), at(plan.NodePort, "", serviceport.BySource)}},
			`nft 10.96.0.1:80 pool=none ipvs=true refusal=0
			nft 198.51.100.1:80 pool=by source ipvs=false refusal=0
			nft 203.0.113.1:80 pool=by source ipvs=false refusal=0
			nft node port:30080 pool=by source ipvs=false refusal=0
			nft endpoints 2 1 hairpin [10.0.1.1]
			ipvs 10.96.0.1:80/tcp lc local=true 10.0.0.1:8080=1 10.0.1.1:8080=1`},
		{"no endpoints",
			plan.Port{Frontends: []plan.Frontend{
				unserved(at(plan.ClusterIP, "10.96.0.1", serviceport.ClusterPool), serviceport.Reject), unserved(at(plan.NodePort, "", serviceport.ClusterPool), serviceport.Reject)}},
			`nft 10.96.0.1:80 pool=none ipvs=false refusal=1
			nft node port:30080 pool=none ipvs=false refusal=1
			nft endpoints 0 0 hairpin []`},
	}
	env := Environment{
		HostAddresses: addrs("192.168.7.1"), Globals: Globals{NodePortAddresses: addrs("127.0.0.1", "192.168.7.1", "fd07::1")},
		ExternalCIDRs: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("192.168.7.0/24")},
		NodeAddresses: addrs("192.168.7.9"),
	}
	m := method{ipvs: true, scheduler: "lc"}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.port.Family, tt.port.Protocol = state.IPv4, state.TCP
			env.divide(&tt.port)
			got := describe(nftShare(&tt.port, &m, &env), virtualServers(&tt.port, &m, &env))
			want := strings.Split(strings.ReplaceAll(tt.want, "\t", ""), "\n")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(- want, + got):\n%s", diff)
			}
		})
	}
}

// TestSplitWithoutNAT: which frontends keep NAT, and that nft serves pods and the node.
func TestSplitWithoutNAT(t *testing.T) {
	env := Environment{
		Globals: Globals{NodePortAddresses: addrs("192.168.7.1")}, HostAddresses: addrs("192.168.7.1"),
		ExternalCIDRs: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")},
	}
	all, here := reals("10.0.0.1:80", "here:10.0.1.1:80"), reals("here:10.0.1.1:80")
	for policy, want := range map[serviceport.Pool]string{
		serviceport.ClusterPool: `nft 10.96.0.1:80 pool=none ipvs=true refusal=0
			nft 203.0.113.1:80 pool=by source ipvs=true refusal=0
			nft 203.0.113.2:80 pool=by source ipvs=true refusal=0
			nft 198.51.100.1:80 pool=cluster ipvs=false refusal=0
			nft node port:30080 pool=none ipvs=true refusal=0
			nft endpoints 2 0 hairpin [10.0.1.1]
			ipvs 10.96.0.1:80/tcp lc local=true 10.0.0.1:80=1 10.0.1.1:80=1
			ipvs 203.0.113.1:80/tcp lc local=true 10.0.0.1:80=1-g 10.0.1.1:80=1-g
			ipvs 203.0.113.2:80/tcp lc local=true 10.0.0.1:80=1-g 10.0.1.1:80=1-g
			ipvs 192.168.7.1:30080/tcp lc local=false 10.0.0.1:80=1 10.0.1.1:80=1`,
		serviceport.BySource: `nft 10.96.0.1:80 pool=none ipvs=true refusal=0
			nft 203.0.113.1:80 pool=by source ipvs=true refusal=0
			nft 203.0.113.2:80 pool=by source ipvs=true refusal=0
			nft node port:30080 pool=by source ipvs=true refusal=0
			nft endpoints 2 0 hairpin [10.0.1.1]
			ipvs 10.96.0.1:80/tcp lc local=true 10.0.0.1:80=1 10.0.1.1:80=1
			ipvs 203.0.113.1:80/tcp lc local=true 10.0.1.1:80=1-g
			ipvs 203.0.113.2:80/tcp lc local=true 10.0.1.1:80=1-g
			ipvs 192.168.7.1:30080/tcp lc local=false 10.0.1.1:80=1`,
	} {
		p := plan.Port{Family: state.IPv4, Protocol: state.TCP, Cluster: all, Local: here, Frontends: []plan.Frontend{
			at(plan.ClusterIP, "10.96.0.1", serviceport.ClusterPool), at(plan.LoadBalancer, "203.0.113.1", policy), at(plan.ExternalIP, "203.0.113.2", policy),
		}}
		if policy == serviceport.ClusterPool {
			p.Frontends = append(p.Frontends, at(plan.ExternalIP, "198.51.100.1", policy))
		}
		p.Frontends = append(p.Frontends, at(plan.NodePort, "", policy))
		m := method{ipvs: true, scheduler: "lc", forwarding: wire.Forwarding{Method: wire.ByRoute}}
		env.divide(&p)
		share := nftShare(&p, &m, &env)
		if diff := cmp.Diff(strings.Split(strings.ReplaceAll(want, "\t", ""), "\n"), describe(share, virtualServers(&p, &m, &env))); diff != "" {
			t.Errorf("policy %d (- want, + got):\n%s", policy, diff)
		}
		for _, fe := range share.Frontends {
			forwarded := fe.Pool == program.BySource && fe.Addr.IsValid()
			if is := fe.Masquerade == contents.MasqueradeNode; is != forwarded {
				t.Errorf("policy %d, %s: masquerade mode %d", policy, fe.Addr, fe.Masquerade)
			}
		}
	}
}

// TestNeedsNAT: where packets cannot keep their destination, NAT forwards, and the problem says why.
func TestNeedsNAT(t *testing.T) {
	s := withAll()
	external := []plan.Frontend{at(plan.ClusterIP, "10.96.0.1", serviceport.ClusterPool), at(plan.ExternalIP, "203.0.113.1", serviceport.ClusterPool)}
	for _, tt := range []struct {
		name    string
		port    plan.Port
		problem string
	}{
		{"the same port", plan.Port{Frontends: external, Cluster: reals("10.0.0.1:80")}, ""},
		{"no endpoints", plan.Port{Frontends: external}, ""},
		{"another port", plan.Port{Frontends: external, Cluster: reals("10.0.0.1:80", "10.0.0.2:8080")}, "endpoint 10.0.0.2:8080 does not have the port"},
		{"another port here", plan.Port{Frontends: external, Local: reals("10.0.0.1:8080")}, "does not have the port of the Service, 80,"},
		{"no such address", plan.Port{Frontends: external[:1], Cluster: reals("10.0.0.1:80")}, "no external IP and no load balancer IP"},
	} {
		tt.port.Balancing.Forwarding = state.Tunnel
		m := s.methodOf(&tt.port)
		if !strings.Contains(m.problem, tt.problem) || (m.problem == "") != (tt.problem == "") || m.ipvs != (tt.problem == "") {
			t.Errorf("%s: %+v", tt.name, m)
		}
	}
}

func TestSplitKeepsWhatIsAskedFor(t *testing.T) {
	p := plan.Port{
		Family: state.IPv6, Protocol: state.UDP, Affinity: time.Hour, Cluster: []serviceport.Endpoint{{Addr: netip.MustParseAddrPort("[fd00::1]:53"), Weight: 7}},
		Frontends: []plan.Frontend{
			{Kind: plan.LoadBalancer, Sources: []netip.Prefix{netip.MustParsePrefix("fd01::/16")}, Frontend: serviceport.Frontend{Addr: netip.MustParseAddr("2001:db8::1"), Port: 53, Pool: serviceport.ClusterPool, Firewalled: true}},
		},
	}
	m := method{ipvs: true, scheduler: "mh", flags: wire.HashPort}
	env := Environment{ExternalCIDRs: []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")}}
	env.divide(&p)
	servers, share := virtualServers(&p, &m, &env), nftShare(&p, &m, &env)
	if len(servers) != 1 {
		t.Fatalf("%d virtual servers", len(servers))
	}
	v := servers[0]
	if v.Protocol != ipvsctl.UDP || v.Persistence != time.Hour || v.Scheduler != "mh" || v.Flags != wire.HashPort || v.RealServers[0].Weight != 7 {
		t.Errorf("virtual server %+v", v)
	}
	if fe := share.Frontends[0]; !fe.Firewalled || len(share.Sources) != 1 || share.Protocol != 17 || share.Family != program.IPv6 {
		t.Errorf("the share of nft is %+v", share)
	}
}
