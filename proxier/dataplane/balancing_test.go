package dataplane

import (
	"reflect"
	"testing"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// effect is what an annotation can change: what both engines get, and what the Service is told.
type effect struct {
	servers []ipvsctl.VirtualServer
	method  nft.Method
	problem string
}

func effectOf(s *Scheduling, asked state.Balancing) effect {
	m := s.choose(asked)
	e := effect{method: m.nft, problem: m.problem}
	if m.ipvs {
		port := plan.Port{
			Family: state.IPv4, Protocol: state.TCP, Cluster: reals("10.0.0.1:8080"),
			Frontends: []plan.Frontend{at(plan.ClusterIP, "10.96.0.1", plan.ClusterPolicy)},
		}
		var env Environment
		env.divide(&port)
		e.servers = virtualServers(&port, &m, &env)
	}
	return e
}

// TestEveryFieldOfBalancing fails when state.Balancing gains a field that the dataplane forgets: each field must change
// what the engines get, or be reported as not honored, with IPVS and without.
func TestEveryFieldOfBalancing(t *testing.T) {
	hybrid := Scheduling{Backend: config.BackendHybrid, Available: ipvsctl.Schedulers()}
	without := Scheduling{Backend: config.BackendNFT, Unavailable: "--backend is nft"}
	tests := []struct {
		name string
		s    Scheduling
		base state.Balancing
	}{
		{"with IPVS", hybrid, state.Balancing{Scheduler: "mh", Flags: "mh-port"}},
		{"with IPVS, nothing else asked", hybrid, state.Balancing{}},
		{"without IPVS", without, state.Balancing{}},
	}
	for _, tt := range tests {
		for path, changed := range fields.Each(tt.base) {
			if reflect.DeepEqual(effectOf(&tt.s, tt.base), effectOf(&tt.s, changed)) {
				t.Errorf("%s: %s changes neither what the engines get nor what the Service is told", tt.name, path)
			}
		}
	}
}
