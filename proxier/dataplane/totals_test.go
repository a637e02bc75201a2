package dataplane

import (
	"fmt"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestPoolsByScheduler: each pool counts under the scheduler that the port gets, which need not be the one it asked for.
func TestPoolsByScheduler(t *testing.T) {
	if n := len(Schedulers()); n > maxSchedulers {
		t.Fatalf("%d schedulers, and room for %d", n, maxSchedulers)
	}
	d := New(Options{Ruleset: inMemory(), Scheduling: Scheduling{Backend: config.BackendNFT}})
	for i, asked := range []string{"", "sh", "rr", "lc"} {
		d.Set(scheduledPlan(i, asked))
	}
	want := map[string]int{"random": 2, "mh": 1, "rr": 1}
	for i, name := range Schedulers() {
		if got := d.Totals().Engines[NFT].Pools[i]; got != want[name] {
			t.Errorf("%s has %d pools, want %d", name, got, want[name])
		}
	}
}

func scheduledPlan(i int, scheduler string) *plan.Service {
	addr := netip.AddrFrom4([4]byte{10, 96, 1, byte(i)})
	endpoint := serviceport.Endpoint{Addr: netip.MustParseAddrPort("10.1.0.1:80"), Weight: 1}
	name := state.Name{Namespace: "default", Name: "svc-" + scheduler}
	return &plan.Service{Name: name, Ports: []plan.Port{{
		Family: state.IPv4, Name: name.String() + ":http", Protocol: state.TCP, Balancing: state.Balancing{Scheduler: scheduler},
		Cluster: []serviceport.Endpoint{endpoint}, Frontends: []plan.Frontend{{Kind: plan.ClusterIP, Frontend: serviceport.Frontend{Addr: addr, Port: 80, ClusterIP: true, Pool: serviceport.ClusterPool}}},
	}}}
}

// TestNoLocalEndpoints: a service port counts once for each policy that leaves it no endpoint, in its family.
func TestNoLocalEndpoints(t *testing.T) {
	d := New(Options{Ruleset: inMemory()})
	planned := scheduledPlan(1, "")
	port := &planned.Ports[0]
	port.Frontends = append(port.Frontends,
		plan.Frontend{Kind: plan.NodePort, Frontend: serviceport.Frontend{Port: 30000, Pool: serviceport.BySource, Refusal: serviceport.Drop}},
		plan.Frontend{Kind: plan.ExternalIP, Frontend: serviceport.Frontend{Addr: netip.MustParseAddr("192.0.2.1"), Port: 80, Pool: serviceport.BySource, Refusal: serviceport.Drop}})
	d.Set(planned)
	if got := d.Totals().NoLocal; got[state.IPv4] != (NoLocal{External: 1}) || got[state.IPv6] != (NoLocal{}) {
		t.Errorf("external: %+v", got)
	}
	port.Frontends[0].Pool, port.Frontends[0].Refusal = serviceport.LocalPool, serviceport.Drop
	d.Set(planned)
	if got := d.Totals().NoLocal[state.IPv4]; got != (NoLocal{Internal: 1, External: 1}) {
		t.Errorf("both: %+v", got)
	}
	port.Frontends = port.Frontends[:1]
	port.Frontends[0].Pool, port.Frontends[0].Refusal = serviceport.ClusterPool, serviceport.NoRefusal
	d.Set(planned)
	d.Delete(planned.Name)
	if got := d.Totals(); got != (AllTotals{}) {
		t.Errorf("nothing is left: %+v", got)
	}
}

// TestTransactionsAreCounted: an Apply that changes nothing sends nothing.
func TestTransactionsAreCounted(t *testing.T) {
	d := New(Options{Ruleset: inMemory()})
	d.Set(scheduledPlan(1, ""))
	if r := d.Apply(); r.Transactions != [...]int{kernel.Applied: 1, kernel.Unknown: 0} || r.Encode <= 0 {
		t.Errorf("a change: %+v", r)
	}
	if r := d.Apply(); r.Transactions != [...]int{kernel.Applied: 0, kernel.Unknown: 0} {
		t.Errorf("no change: %+v", r)
	}
}

// TestAddResults: what several steps of a pass did counts together.
func TestAddResults(t *testing.T) {
	step := func(n int, outcome Outcome) (r Result) {
		r = Result{Outcome: outcome, Added: n, Deleted: 2 * n, Bytes: 3 * n, Counts: serviceport.Counts{int32(n)}, Operations: 4 * n, Encode: time.Duration(5 * n), Kernel: time.Duration(6 * n)}
		r.Transactions[outcome] = n
		r.Failures = []Failure{{Object: strconv.Itoa(n)}}
		r.changed(web, serviceport.Counts{int32(n)})
		for range maxSteps - 1 {
			r.keep(func() []string { return []string{strconv.Itoa(n)} })
		}
		return r
	}
	sum := step(1, kernel.Rejected)
	sum.Full = true
	sum.Add(step(10, kernel.Applied))
	steps := ""
	for _, lines := range sum.Changes {
		steps += lines()[0] + " "
	}
	if want := strings.Repeat("1 ", maxSteps-1) + "10 "; steps != want {
		t.Errorf("the steps are %s, want %s", steps, want)
	}
	got, want := sum, step(11, kernel.Applied)
	want.Full, want.Failures = true, []Failure{{Object: "1"}, {Object: "10"}}
	want.Transactions = [...]int{kernel.Applied: 10, kernel.Rejected: 1, kernel.Unknown: 0}
	got.Changes, want.Changes = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the sum is %+v, want %+v", got, want)
	}
}

// TestMasqueradeModes: nft masquerades the connections of a frontend as the plan says.
func TestMasqueradeModes(t *testing.T) {
	for mode, want := range map[serviceport.Masquerade]program.SetID{
		serviceport.NoMasquerade: program.ClusterIPs, serviceport.MasqueradeAlways: program.MasqueradeAlways, serviceport.MasqueradeNode: program.MasqueradeNode,
	} {
		rules := inMemory()
		m := New(Options{Ruleset: rules})
		planned := scheduledPlan(1, "")
		fe := &planned.Ports[0].Frontends[0]
		fe.Masquerade, fe.ClusterIP = mode, mode == serviceport.NoMasquerade
		m.Set(planned)
		m.Apply()
		for _, set := range []program.SetID{program.ClusterIPs, program.MasqueradeAlways, program.MasqueradeNode} {
			n := 0
			if err := rules.kernel.DumpElements(program.IPv4, set, func(kernel.Found) { n++ }); err != nil || (n > 0) != (set == want) {
				t.Errorf("mode %d: %s has %d elements, %v", mode, set, n, err)
			}
		}
	}
}

func TestEngineNames(t *testing.T) {
	if names := fmt.Sprint(NFT, " ", IPVS); names != "nft ipvs" {
		t.Errorf("the engines are %s", names)
	}
}
