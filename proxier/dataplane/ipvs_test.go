package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// journal has what the Dataplane asks of both engines, in order.
type journal []string

func (j *journal) note(format string, args ...any) { *j = append(*j, fmt.Sprintf(format, args...)) }

// ruleset is the nft engine in memory, with a journal and with faults.
type ruleset struct {
	*nft.Memory
	journal *journal
	fail    int  // applies to refuse
	refuse  bool // guards
	stuck   bool // the apply after the next Unguard fails
}

func (r *ruleset) Guard(addrs []netip.Addr) (bool, error) {
	if r.refuse {
		return false, errors.New("injected: no guard")
	}
	if len(addrs) > 0 {
		r.journal.note("guard %v", addrs)
	}
	return r.Memory.Guard(addrs)
}

func (r *ruleset) Unguard(addrs []netip.Addr) {
	if len(addrs) > 0 {
		r.journal.note("unguard %v", addrs)
		if r.stuck {
			r.stuck, r.fail = false, 1
		}
	}
	r.Memory.Unguard(addrs)
}

func (r *ruleset) Apply() (nft.Result, error) {
	if r.fail > 0 {
		r.fail--
		r.journal.note("apply refused")
		return nft.Result{Outcome: nft.Rejected}, errors.New("injected: the kernel refuses")
	}
	r.journal.note("apply")
	return r.Memory.Apply()
}

// balancer is the IPVS engine in memory, with a journal and with faults.
type balancer struct {
	*ipvsctl.Memory
	journal *journal
	refuse  string // part of a name whose virtual servers the kernel refuses
	fail    error  // of Remove and Tick
	damaged bool   // somebody else changed something
	wanted  map[string][]ipvsctl.VirtualServer
}

// Set remembers what is wanted and keeps what the kernel is to refuse from the engine.
func (b *balancer) Set(name string, servers []ipvsctl.VirtualServer) error {
	b.wanted[name] = servers
	if b.refuses(name) {
		for i := range servers {
			servers[i].Scheduler = "unknown" // which the kernel refuses when Add comes
		}
	}
	return b.Memory.Set(name, servers)
}

func (b *balancer) refuses(name string) bool {
	return b.refuse != "" && strings.Contains(name, b.refuse)
}

func (b *balancer) Delete(name string) {
	delete(b.wanted, name)
	b.Memory.Delete(name)
}

func (b *balancer) Add(now time.Time) (ipvsctl.Result, error) {
	b.journal.note("add")
	return b.Memory.Add(now)
}

func (b *balancer) Remove(now time.Time) (ipvsctl.Result, error) {
	b.journal.note("remove")
	r, err := b.Memory.Remove(now)
	return b.faulty(r, err)
}

func (b *balancer) Tick(now time.Time) (ipvsctl.Result, error) {
	return b.faulty(b.Memory.Tick(now))
}

func (b *balancer) faulty(r ipvsctl.Result, err error) (ipvsctl.Result, error) {
	if b.fail != nil {
		r.Failures = append(r.Failures, ipvsctl.Failure{Key: webKey(), Err: b.fail})
		return r, b.fail
	}
	return r, err
}

func (b *balancer) Intact() (bool, error) { return !b.damaged, nil }

func webKey() ipvsctl.Key {
	return ipvsctl.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: ipvsctl.TCP}
}

// world is a Dataplane with both engines in memory, and one Service that asks for a scheduler of IPVS.
type world struct {
	*Dataplane
	journal  journal
	rules    *ruleset
	balancer *balancer
	problems map[state.Name][]state.Problem
	services map[state.Name]*plan.Service
	last     Result
}

const webPort = "ip default/web:http"

var web = state.Name{Namespace: "default", Name: "web"}

// newWorld starts with tables that an earlier process wrote, unless it is the first process of all.
func newWorld(t *testing.T, first bool) *world {
	t.Helper()
	w := &world{problems: map[state.Name][]state.Problem{}, services: map[state.Name]*plan.Service{}}
	w.rules = &ruleset{Memory: nft.OpenMemory(nft.Options{}), journal: &w.journal}
	if !first {
		w.rules.SetGlobals(nft.Globals{IPVS: true})
		_, err := w.rules.Memory.Apply()
		again, restartErr := w.rules.Restart(nft.Options{})
		if err := errors.Join(err, restartErr); err != nil {
			t.Fatal(err)
		}
		w.rules.Memory = again
	}
	w.start(ipvsctl.OpenMemory(options()))
	w.ask("lc")
	return w
}

func options() ipvsctl.Options {
	return ipvsctl.Options{GracefulPeriod: time.Hour, Exclude: []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}}
}

// start makes the Dataplane over an IPVS engine.
func (w *world) start(m *ipvsctl.Memory) {
	w.balancer = &balancer{Memory: m, journal: &w.journal, wanted: map[string][]ipvsctl.VirtualServer{}}
	w.Dataplane = New(Options{
		Ruleset: w.rules, Balancer: w.balancer,
		Scheduling: Scheduling{Backend: config.BackendHybrid, Available: ipvsctl.Schedulers()},
	})
	w.SetEnvironment(Environment{NodePortAddresses: addrs("192.168.7.1"), ExternalCIDRs: externalCIDRs})
}

// externalCIDRs are the ranges of the external addresses that IPVS may serve.
var externalCIDRs = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("10.97.0.0/24")}

// ask has the Service web ask for a scheduler, with external addresses besides its cluster IP.
func (w *world) ask(scheduler string, external ...string) {
	w.serve("web", "10.96.0.1", scheduler, external...)
}

func (w *world) serve(name, clusterIP, scheduler string, external ...string) {
	port := plan.Port{
		Family: state.IPv4, Name: "default/" + name + ":http", Protocol: state.TCP, Balancing: state.Balancing{Scheduler: scheduler},
		Cluster:   reals("10.0.0.1:8080", "10.0.0.2:8080"),
		Frontends: []plan.Frontend{at(plan.ClusterIP, clusterIP, plan.ClusterPolicy)},
	}
	for _, ip := range external {
		port.Frontends = append(port.Frontends, at(plan.LoadBalancer, ip, plan.ClusterPolicy))
	}
	svc := &plan.Service{Name: state.Name{Namespace: "default", Name: name}, Ports: []plan.Port{port}}
	w.services[svc.Name] = svc
	w.set(svc.Name)
}

func (w *world) set(name state.Name) { w.problems[name] = w.Set(w.services[name]) }

// apply does what the loop does in a pass.
func (w *world) apply() {
	w.journal = nil
	for {
		w.last = w.Apply()
		if w.last.Err != nil || len(w.last.Replan) == 0 {
			return
		}
		for _, name := range w.last.Replan {
			w.set(name)
		}
	}
}

// pass applies and compares the journal.
func (w *world) pass(t *testing.T, when, want string) {
	t.Helper()
	w.apply()
	if got := strings.Join(w.journal, ", "); got != want {
		t.Fatalf("%s:\n got %s\nwant %s", when, got, want)
	}
}

// tick does what the loop does every second. It reports whether a pass was needed.
func (w *world) tick() bool {
	w.journal = nil
	w.last = w.Tick()
	for _, name := range w.last.Replan {
		w.set(name)
	}
	if len(w.last.Replan) > 0 {
		w.apply()
		return true
	}
	return false
}

// served names the engine that serves the Service web, as both kernels have it.
func (w *world) served(t *testing.T) string {
	t.Helper()
	listing, err := w.rules.List(func(name string) bool { return name == "default/web:http" })
	if err != nil || len(listing.Frontends) == 0 {
		t.Fatalf("no frontends: %v", err)
	}
	fe := listing.Frontends[0]
	virtual := strings.Contains(w.balancer.String(), "10.96.0.1:80") && w.balancer.wanted[webPort] != nil
	switch {
	case fe.IPVS && fe.Pool == nft.NoPool && virtual:
		return "ipvs"
	case !fe.IPVS && fe.Pool == nft.ClusterPool && !virtual:
		return "nft"
	}
	return fmt.Sprintf("both or none: %+v, %t", fe, virtual)
}

func (w *world) wantServed(t *testing.T, when, want string) {
	t.Helper()
	if got := w.served(t); got != want {
		t.Fatalf("%s: served by %s, want %s", when, got, want)
	}
}

func (w *world) problem() string {
	var all []string
	for _, p := range w.problems[web] {
		all = append(all, p.Reason)
	}
	return strings.Join(all, "|")
}

// leftover is an IPVS engine over what an earlier process left: the address 10.96.0.77.
func leftover(t *testing.T) *ipvsctl.Memory {
	t.Helper()
	m := ipvsctl.OpenMemory(options())
	v := ipvsctl.VirtualServer{Key: ipvsctl.Key{Addr: netip.MustParseAddr("10.96.0.77"), Port: 80, Protocol: ipvsctl.TCP}, Local: true, Scheduler: "rr"}
	if err := m.Set("gone", []ipvsctl.VirtualServer{v}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Add(time.Now()); err != nil {
		t.Fatal(err)
	}
	again, err := m.Restart(options())
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestOrderOfEngines: no connection fails while a Service moves, and no address is local without its guard.
func TestOrderOfEngines(t *testing.T) {
	w := newWorld(t, false)
	w.start(leftover(t))
	w.ask("lc")
	w.pass(t, "first pass over what an earlier process left",
		"guard [10.96.0.1 10.96.0.77], add, apply, remove, unguard [10.96.0.77], apply")
	w.wantServed(t, "first pass", "ipvs")
	w.pass(t, "nothing changed", "add, apply, remove")
	w.ask("lc", "203.0.113.1")
	w.pass(t, "another address", "guard [203.0.113.1], add, apply, remove")
	w.ask("")
	w.pass(t, "to nft", "add, apply, remove")
	w.wantServed(t, "moved", "nft")
}

// TestTheSchedulerOfAVirtualServerChanges: the kernel refuses connections while it changes it, so nft serves in
// between.
func TestTheSchedulerOfAVirtualServerChanges(t *testing.T) {
	w := newWorld(t, false)
	w.apply()
	w.ask("rr")
	w.pass(t, "another scheduler", "add, apply, remove")
	w.wantServed(t, "while IPVS gives up the old scheduler", "nft")
	if w.problem() != "" {
		t.Errorf("problem %q", w.problem())
	}
	if !w.tick() {
		t.Error("the tick does not give the port back to IPVS")
	}
	w.wantServed(t, "afterwards", "ipvs")
	if w.tick() || w.problem() != "" {
		t.Errorf("then: %v, problem %q", w.journal, w.problem())
	}
}

func TestNoTableYet(t *testing.T) {
	w := newWorld(t, true)
	w.pass(t, "first pass of all", "guard [10.96.0.1], apply, add, remove")
	w.wantServed(t, "first pass", "ipvs")
}

func TestNoTableAndIPVSRefuses(t *testing.T) {
	w := newWorld(t, true)
	w.balancer.refuse = "web"
	w.ask("lc")
	w.pass(t, "first pass of all", "guard [10.96.0.1], apply, add, unguard [10.96.0.1], add, apply, remove")
	w.wantServed(t, "refused", "nft")
}

func TestNothingIsRemovedBeforeNftHasIt(t *testing.T) {
	w := newWorld(t, false)
	w.apply()
	w.ask("")
	w.rules.fail = 1
	w.pass(t, "nft refuses", "add, apply refused")
	if w.last.Applied() || w.last.Outcome != nft.Rejected {
		t.Errorf("result %+v", w.last)
	}
	w.pass(t, "retry", "add, apply, remove")
	w.rules.refuse = true
	w.ask("lc", "203.0.113.1")
	w.pass(t, "no guard", "")
	if w.last.Err == nil || w.last.Outcome != nft.Rejected {
		t.Errorf("without a guard: %+v", w.last)
	}
}

// TestIPVSRefuses: nft serves a port that IPVS cannot serve, in the same pass, with a problem, until IPVS can.
func TestIPVSRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.balancer.refuse = "web"
		w.ask("lc")
		w.pass(t, "refused", "guard [10.96.0.1], add, unguard [10.96.0.1], add, apply, remove")
		w.wantServed(t, "refused", "nft")
		if !strings.Contains(w.problem(), "add virtual server 10.96.0.1:80/tcp") || !strings.Contains(w.problem(), "; nft serves this port") {
			t.Errorf("problems: %q", w.problem())
		}
		w.balancer.refuse = ""
		w.tick()
		w.wantServed(t, "not tried again at once", "nft")
		time.Sleep(firstBackoff)
		w.tick()
		w.wantServed(t, "tried again", "ipvs")
		if w.problem() != "" {
			t.Errorf("the problem stays: %q", w.problem())
		}
	})
}

// TestRefusalsAreReported: they say service, object, operation, cause and what happens next, in the pass in which they
// happen.
func TestRefusalsAreReported(t *testing.T) {
	w := newWorld(t, false)
	w.balancer.refuse = "web"
	w.ask("lc")
	first := w.Apply()
	if len(first.Failures) != 1 || len(first.Replan) != 1 || first.Applied() {
		t.Fatalf("result %+v", first)
	}
	f := first.Failures[0]
	var refused *ipvsctl.OperationError
	if f.Service != web || f.Object != "10.96.0.1:80/tcp" || !errors.As(f.Err, &refused) || !strings.Contains(f.Next, "1m0s") {
		t.Errorf("failure %+v", f)
	}
	w.set(web)
	w.apply()
	w.balancer.fail = errors.New("injected: device or resource busy")
	if r := w.Tick(); len(r.Failures) != 1 || r.Failures[0].Service != (state.Name{}) || r.Failures[0].Next == "" || r.Err != nil {
		t.Errorf("a removal that fails: %+v", r)
	}
}

// triedAfter expects that IPVS is tried after a time, not half a minute before.
func (w *world) triedAfter(t *testing.T, when string, d time.Duration) {
	t.Helper()
	time.Sleep(d - 30*time.Second)
	early := w.tick()
	time.Sleep(30 * time.Second)
	if late := w.tick(); early || !late {
		t.Fatalf("%s: IPVS was tried half a minute before %s: %t, and then: %t", when, d, early, late)
	}
}

// TestWhatIsRefusedForGood is tried less and less often, and as at first when something has changed.
func TestWhatIsRefusedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.balancer.refuse = "web"
		w.ask("lc")
		w.apply()
		for _, minutes := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			w.triedAfter(t, "always the same", minutes*time.Minute)
			w.wantServed(t, "refused", "nft")
		}
		w.ask("lc", "203.0.113.1")
		w.pass(t, "another address soon after it was refused", "add, apply, remove")
		w.triedAfter(t, "another address", time.Minute)
		w.triedAfter(t, "another address, once more", time.Minute)
		w.triedAfter(t, "the same since", 2*time.Minute)

		w.balancer.refuse = ""
		w.triedAfter(t, "taken", 4*time.Minute)
		w.wantServed(t, "taken", "ipvs")
		if len(w.ipvs.refused)+len(w.ipvs.retrying) > 0 {
			t.Errorf("still remembered: %v %v", w.ipvs.refused, w.ipvs.retrying)
		}
	})
}

// TestOnlyWhatIPVSRefusesLosesItsGuard: what others listen to at that address answers again, and only there.
func TestOnlyWhatIPVSRefusesLosesItsGuard(t *testing.T) {
	w := newWorld(t, false)
	w.balancer.refuse = "shop"
	w.serve("shop", "10.96.0.2", "lc")
	w.pass(t, "one of two refused",
		"guard [10.96.0.1 10.96.0.2], add, unguard [10.96.0.2], guard [10.96.0.1], add, apply, remove")
	w.wantServed(t, "the other one", "ipvs")
}

func TestForeignVirtualServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, false)
		w.balancer.PutForeign(ipvsctl.VirtualServer{Key: webKey(), Scheduler: "rr"})
		w.ask("lc")
		w.pass(t, "foreign", "add, apply, remove")
		if !strings.Contains(w.problem(), "another tool has made this virtual server; nft serves this port") {
			t.Errorf("problems: %q", w.problem())
		}
		w.balancer.DeleteServer(webKey())
		time.Sleep(obstaclePeriod)
		w.tick()
		w.wantServed(t, "gone", "ipvs")
		if w.problem() != "" {
			t.Errorf("the problem stays: %q", w.problem())
		}
	})
}

func TestExcludedAddress(t *testing.T) {
	w := newWorld(t, false)
	w.ask("lc", "10.97.0.1")
	w.pass(t, "excluded", "add, apply, remove")
	w.wantServed(t, "excluded", "nft")
	if !strings.Contains(w.problem(), "10.97.0.1:80/tcp") || !strings.Contains(w.problem(), "--ipvs-exclude-cidrs") {
		t.Errorf("problems: %q", w.problem())
	}
}

func TestVirtualServersFollowTheHostsAddresses(t *testing.T) {
	w := newWorld(t, false)
	w.ask("lc", "203.0.113.1")
	w.apply()
	local := func() string {
		var out []string
		for _, v := range w.balancer.wanted[webPort] {
			out = append(out, fmt.Sprint(v.Addr, "=", v.Local))
		}
		return strings.Join(out, " ")
	}
	if got := local(); got != "10.96.0.1=true 203.0.113.1=true" {
		t.Fatal(got)
	}
	env := Environment{
		NodePortAddresses: addrs("192.168.7.1"), HostAddresses: addrs("203.0.113.1"), ExternalCIDRs: externalCIDRs,
	}
	if replan := w.SetEnvironment(env); len(replan) != 1 || replan[0] != web {
		t.Fatalf("the host has an external address; to plan again: %v", replan)
	}
	w.set(web)
	w.pass(t, "the host has an external address", "add, unguard [203.0.113.1], apply, remove")
	if got := local(); got != "10.96.0.1=true 203.0.113.1=false" {
		t.Fatal(got)
	}
	if replan := w.SetEnvironment(env); len(replan) != 0 {
		t.Errorf("nothing changed; to plan again: %v", replan)
	}
}

// TestNoAddressOfANodeOrServerIsLocal: when an address turns out to be one of a node or of an API server, IPVS gives it
// up, and nft serves it.
func TestNoAddressOfANodeOrServerIsLocal(t *testing.T) {
	for what, env := range map[string]Environment{
		"is an address of this node":       {ExternalCIDRs: externalCIDRs, NodeAddresses: addrs("203.0.113.1")},
		"is an address of an API server":   {ExternalCIDRs: externalCIDRs, APIServers: addrs("203.0.113.1")},
		"is outside --ipvs-external-cidrs": {},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t, false)
			w.apply()
			w.ask("lc", "203.0.113.1")
			w.pass(t, "a pool of load balancers", "guard [203.0.113.1], add, apply, remove")
			env.NodePortAddresses = addrs("192.168.7.1")
			if replan := w.SetEnvironment(env); len(replan) != 1 || replan[0] != web {
				t.Fatalf("to plan again: %v", replan)
			}
			w.set(web)
			w.pass(t, what, "add, apply, remove")
			w.wantServed(t, "the cluster IP", "ipvs")
			if got := w.balancer.wanted[webPort]; len(got) != 1 {
				t.Errorf("virtual servers %v; want that of the cluster IP", got)
			}
			if !strings.Contains(w.problem(), "203.0.113.1 "+what) || w.problems[web][0].Field != "status.loadBalancer.ingress" {
				t.Errorf("problems %+v", w.problems[web])
			}
		})
	}
}

func TestEndOfABalancedService(t *testing.T) {
	w := newWorld(t, false)
	w.apply()
	totals := w.Totals().Engines
	if totals[IPVS].Frontends[plan.ClusterIP] != 1 || totals[IPVS].Endpoints != 2 || totals[NFT] != (Totals{}) {
		t.Errorf("totals %+v", totals)
	}
	w.Delete(web)
	w.pass(t, "deleted", "add, apply, remove")
	if len(w.balancer.wanted)+len(w.ipvs.services) != 0 || w.Totals() != (AllTotals{}) {
		t.Errorf("remains: %v, %v, %v", w.balancer.wanted, w.ipvs.services, w.Totals())
	}
	listing, err := w.rules.List(nil)
	if err != nil || len(listing.Frontends) > 0 {
		t.Errorf("frontends %v, error %v", listing.Frontends, err)
	}
}

// TestGuardsThatStay: a guard that could not be taken off is an error, after an Apply as after a Tick.
func TestGuardsThatStay(t *testing.T) {
	w := newWorld(t, false)
	w.start(leftover(t))
	w.rules.stuck = true
	w.apply()
	if w.last.Err == nil || !strings.Contains(w.last.Err.Error(), "take the guards off 10.96.0.77") || w.last.Outcome != nft.Rejected {
		t.Errorf("after an Apply: %+v", w.last)
	}
	w.pass(t, "repeated", "add, apply, remove")

	w.ask("lc")
	w.apply()
	w.ask("")
	w.apply()
	w.rules.stuck = true
	if r := w.tickAfter(t, 2*time.Hour); r.Err == nil || !strings.Contains(r.Err.Error(), "10.96.0.1") {
		t.Errorf("after a Tick: %+v", r)
	}
}

// tickAfter lets the engines believe that a time has passed.
func (w *world) tickAfter(t *testing.T, d time.Duration) Result {
	t.Helper()
	var r Result
	done, _ := w.balancer.Tick(time.Now().Add(d))
	w.noteRemoved(&r, done)
	return r
}

func TestDrainsAreFollowed(t *testing.T) {
	w := newWorld(t, false)
	w.apply()
	w.ask("")
	w.apply()
	w.journal = nil
	w.tickAfter(t, 2*time.Hour)
	if got := strings.Join(w.journal, ", "); got != "unguard [10.96.0.1], apply" {
		t.Errorf("journal %s", got)
	}
	if damaged, err := w.Check(); len(damaged) > 0 || err != nil {
		t.Errorf("damaged %v, error %v; nobody changed anything", damaged, err)
	}
	w.balancer.damaged = true
	if damaged, err := w.Check(); len(damaged) != 1 || damaged[0] != "virtual servers" || err != nil {
		t.Errorf("after interference: damaged %v, error %v", damaged, err)
	}
}
