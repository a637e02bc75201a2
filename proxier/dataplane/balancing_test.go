package dataplane

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// effect is what an annotation can change: what both engines get, and which Problem the Service gets.
type effect struct {
	servers []ipvsctl.VirtualServer
	method  program.Method
	problem string
}

func effectOf(s *Scheduling, asked state.Balancing) effect {
	m := s.choose(asked)
	e := effect{method: m.nft, problem: m.problem}
	if m.ipvs {
		port := plan.Port{
			Family: state.IPv4, Protocol: state.TCP, Cluster: reals("10.0.0.1:80"),
			Frontends: []plan.Frontend{at(plan.LoadBalancer, "203.0.113.1", serviceport.ClusterPool)},
		}
		env := Environment{ExternalCIDRs: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}
		env.divide(&port)
		e.servers = virtualServers(&port, &m, &env)
	}
	return e
}

// TestEveryFieldOfBalancing fails when state.Balancing gains a field that the dataplane forgets: each field must change
// what the engines get, or be reported as not honored, with IPVS and without.
func TestEveryFieldOfBalancing(t *testing.T) {
	for _, tt := range []struct {
		name string
		s    Scheduling
		base state.Balancing
	}{
		{"with IPVS", withAll(), state.Balancing{Scheduler: "mh", Flags: "mh-port"}},
		{"with IPVS, nothing else asked", withAll(), state.Balancing{}},
		{"without IPVS", Scheduling{Backend: config.BackendNFT, Unavailable: "--backend is nft"}, state.Balancing{}},
	} {
		for path, changed := range fields.Each(tt.base) {
			got := effectOf(&tt.s, changed)
			if reflect.DeepEqual(effectOf(&tt.s, tt.base), got) {
				t.Errorf("%s: %s changes neither what the engines get nor what the Service is told", tt.name, path)
			}
			if strings.Contains(got.problem, "the kernel has no scheduler") {
				t.Errorf("%s: %s asks IPVS for a scheduler that does not exist: %s", tt.name, path, got.problem)
			}
		}
	}
}

// withAll has all schedulers, and the default that IPVS needs for Services that name none, as the daemon has it.
func withAll() Scheduling {
	return Scheduling{Backend: config.BackendHybrid, Default: "rr", Available: ipvsctl.Schedulers()}
}

// TestAnnotationsAreHonored: with all annotations of a Service at their examples, each has an effect on what each of its
// engines gets, and none is reported. An annotation that only IPVS honors is reported where there is no IPVS.
func TestAnnotationsAreHonored(t *testing.T) {
	with, without := withAll(), Scheduling{Backend: config.BackendNFT, Unavailable: "--backend is nft"}
	with.Backend = config.BackendIPVS
	all := balancingOf(t, "")
	got := effectOf(&with, all)
	if got.problem != "" || len(got.servers) == 0 {
		t.Errorf("all annotations: %+v", got)
	}
	for _, a := range state.Annotations() {
		others := balancingOf(t, a.Key)
		if others == all {
			continue // it sets no field of state.Balancing
		}
		if reflect.DeepEqual(effectOf(&with, others).servers, got.servers) {
			t.Errorf("%s: %q changes nothing that IPVS gets", a.Key, a.Example)
		}
		if told := effectOf(&without, all).problem; a.Engines == "IPVS" && told == effectOf(&without, others).problem {
			t.Errorf("%s: nothing says that it needs IPVS: %q", a.Key, told)
		}
		if a.Engines != "IPVS" && reflect.DeepEqual(effectOf(&without, others), effectOf(&without, all)) {
			t.Errorf("%s: %q changes nothing that nft gets", a.Key, a.Example)
		}
	}
}

// balancingOf returns what all examples ask for, without one key.
func balancingOf(t *testing.T, without string) state.Balancing {
	t.Helper()
	svc := state.Service{Ports: []state.ServicePort{{Port: 80}}}
	for _, a := range state.Annotations() {
		if a.Service == nil || a.Key == without {
			continue
		}
		if err := a.Service(&svc, a.Example); err != nil {
			t.Errorf("%s: the example: %v", a.Key, err)
		}
	}
	return svc.Balancing
}
