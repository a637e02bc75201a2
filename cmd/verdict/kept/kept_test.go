package kept

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestNamesTheScheduler: a Service that is kept names the scheduler that the kernel has for it. With none, it would get that
// of --default-scheduler, which may have changed since the kernel got the Service.
func TestNamesTheScheduler(t *testing.T) {
	for _, c := range []struct {
		method    program.Method
		scheduler string
	}{{program.Random, "random"}, {program.InTurn, "rr"}, {program.SourceHash, "mh"}} {
		addr := netip.MustParseAddr("10.96.0.1")
		kept := keptObjects(&inspect.Left{
			Listing: inspect.Listing{Frontends: []inspect.FrontendStatus{{
				Family: program.IPv4, Name: "default/web:http", Protocol: uint8(state.TCP), Addr: addr, Port: 80, Pool: program.ClusterPool,
				Method:  c.method,
				Cluster: []inspect.EndpointStatus{{Addr: netip.MustParseAddrPort("10.244.0.1:8080"), Slots: 1}, {Addr: netip.MustParseAddrPort("10.244.0.2:8080"), Slots: 1}},
			}}},
			ClusterIPs: map[netip.Addr]bool{addr: true}, OnNode: map[netip.Addr]bool{},
		}, nil, "node-1")
		if len(kept.Services) != 1 || kept.Services[0].Balancing.Scheduler != c.scheduler {
			t.Fatalf("method %v: kept %+v, want one Service with the scheduler %s", c.method, kept.Services, c.scheduler)
		}
		for _, preferred := range []string{"", "random", "rr", "sh"} { // --default-scheduler
			if got := methodOf(kept.Services[0], kept.Slices, preferred); got != c.method {
				t.Errorf("with --default-scheduler=%q, the kernel gets method %v, want %v as before", preferred, got, c.method)
			}
		}
	}
}

// TestNamesTheSchedulerOfMost: a port that has no room for its hash table is served at random. The others of its Service are not.
func TestNamesTheSchedulerOfMost(t *testing.T) {
	addr := netip.MustParseAddr("10.96.0.1")
	left := inspect.Left{ClusterIPs: map[netip.Addr]bool{addr: true}, OnNode: map[netip.Addr]bool{}}
	for i, m := range []program.Method{program.Random, program.SourceHash, program.Random} {
		left.Frontends = append(left.Frontends, inspect.FrontendStatus{
			Family: program.IPv4, Name: fmt.Sprintf("default/web:port-%d", i), Protocol: uint8(state.TCP), Addr: addr, Port: uint16(80 + i),
			Pool: program.ClusterPool, Method: m, Cluster: []inspect.EndpointStatus{{Addr: netip.MustParseAddrPort("10.244.0.1:8080"), Slots: 1}},
		})
	}
	kept := keptObjects(&left, nil, "node-1")
	if len(kept.Services) != 1 || kept.Services[0].Balancing.Scheduler != "mh" {
		t.Errorf("kept %+v, want one Service with the scheduler mh", kept.Services)
	}
}

// methodOf plans a Service, and returns how a kernel in memory picks its endpoints then.
func methodOf(svc *state.Service, list []*state.Slice, preferred string) program.Method {
	m := dataplane.OpenMemory(dataplane.MemoryOptions{Scheduling: dataplane.Scheduling{Backend: config.BackendNFT, Preferred: preferred}})
	m.SetEnvironment(dataplane.Environment{})
	planned := new(plan.Planner).Plan(svc, list, &plan.Environment{NodeName: "node-1", IPv4: true})
	m.Set(&planned)
	m.Apply()
	found, err := m.Ruleset.List(nil)
	if err != nil || len(found.Frontends) != 1 {
		panic(fmt.Sprint("one frontend was wanted: ", found.Frontends, err))
	}
	return found.Frontends[0].Method
}
