package dataplane

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/ipvsctl/wire"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

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
	if w.last.Applied() || w.last.Outcome != kernel.Rejected {
		t.Errorf("result %+v", w.last)
	}
	w.pass(t, "retry", "add, apply, remove")
	w.rules.refuse = true
	w.ask("lc", "203.0.113.1")
	w.pass(t, "no guard", "")
	if w.last.Err == nil || w.last.Outcome != kernel.Rejected {
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
		w.balancer.kernel.Put(wire.Server{Key: webKey(), Header: wire.Header{Scheduler: "rr"}})
		w.ask("lc")
		w.pass(t, "foreign", "add, apply, remove")
		if !strings.Contains(w.problem(), "another tool has made this virtual server; nft serves this port") {
			t.Errorf("problems: %q", w.problem())
		}
		delete(w.balancer.kernel.State, webKey())
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
	if totals := w.Totals().Engines; totals[IPVS] != (Totals{}) || totals[NFT].Frontends[plan.LoadBalancer] != 1 {
		t.Errorf("totals %+v", totals)
	}
}

// TestFrontendsWithoutNAT: connections to external addresses keep their destination if the endpoints answer clients themselves.
func TestFrontendsWithoutNAT(t *testing.T) {
	w := newWorld(t, false)
	w.ask("lc", "203.0.113.1", "198.51.100.1") // IPVS may not serve the last one
	port := &w.services[web].Ports[0]
	port.Cluster = reals("10.0.0.1:80")
	for _, way := range []state.Forwarding{state.Route, state.NAT} {
		port.Balancing.Forwarding = way
		w.set(web)
		for i := range port.Frontends {
			if f := &port.Frontends[i]; f.Unchanged != (way == state.Route && i == 1) {
				t.Errorf("forwarding %q: %s keeps its destination: %t", way, f.Addr, f.Unchanged)
			}
		}
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
		Globals: Globals{NodePortAddresses: addrs("192.168.7.1")}, HostAddresses: addrs("203.0.113.1"), ExternalCIDRs: externalCIDRs,
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
	listing, err := w.rules.kernel.List(nil)
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
	if w.last.Err == nil || !strings.Contains(w.last.Err.Error(), "take the guards off 10.96.0.77") || w.last.Outcome != kernel.Rejected {
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
	if found, err := w.Compare(true); found.Servers || !found.Tables.Empty() || err != nil {
		t.Errorf("found %+v, error %v; nobody changed anything", found, err)
	}
	w.balancer.damaged = true
	for _, repair := range []bool{true, false} {
		if found, err := w.Compare(repair); !found.Servers || !found.Tables.Empty() || err != nil {
			t.Errorf("after interference: found %+v, error %v", found, err)
		}
	}
	w.balancer.deaf = errors.New("injected: no answer")
	if _, err := w.Compare(true); !errors.Is(err, w.balancer.deaf) || !strings.HasPrefix(err.Error(), "compare IPVS: ") {
		t.Errorf("the kernel does not answer: %v", err)
	}
}

// TestRulesKnowOfIPVS: the rules have chains for what IPVS balances only where there is an engine for it.
func TestRulesKnowOfIPVS(t *testing.T) {
	for _, with := range []bool{true, false} {
		w := newWorld(t, false)
		if !with {
			w.Dataplane = New(Options{Ruleset: w.rules})
		}
		w.SetEnvironment(Environment{Globals: Globals{MasqueradeAll: true}})
		if is := w.rules.globals; is.IPVS != with || !is.MasqueradeAll {
			t.Errorf("with an engine: %t: the rules are written for %+v", with, is)
		}
	}
}

// TestRangesStayInNFT: IPVS has no ranges of ports. nft serves them, and a Problem says which scheduler stands in for one that only
// IPVS has.
func TestRangesStayInNFT(t *testing.T) {
	w := newWorld(t, false)
	w.apply()
	port := &w.services[web].Ports[0]
	port.Frontends[0].EndPort, port.Cluster = 90, reals("10.0.0.1:80", "10.0.0.2:80")
	w.set(web)
	w.apply()
	w.wantServed(t, "a range", "nft")
	if text := w.rules.kernel.String(); !strings.Contains(text, "10.96.0.1 . tcp . 80-90 comment") || !strings.Contains(text, "0:2 . 1 : 10.0.0.2") {
		t.Errorf("the range or its endpoints without ports are missing:\n%s", text)
	}
	const random = "needs IPVS (which has no ranges of ports); endpoints are picked at random, by weight"
	for scheduler, want := range map[string]string{
		"lc": random, "wlc": random, "sed": random, "nq": random, "ovf": random, "rr": "", "sh": "", "": "",
		"fo": "needs IPVS (which has no ranges of ports); the endpoints of the greatest weight are picked at random",
	} {
		if want != "" {
			want = "scheduler " + scheduler + " " + want
		}
		for _, backend := range []config.Backend{config.BackendHybrid, config.BackendIPVS} {
			w.Backend, w.Default = backend, "rr"
			port.Balancing.Scheduler = scheduler
			if w.set(web); w.problem() != want {
				t.Errorf("%s, scheduler %s: problem %q, want %q", backend, scheduler, w.problem(), want)
			}
		}
	}
	w.Backend = config.BackendHybrid
	w.ask("lc")
	w.apply()
	w.wantServed(t, "no range any more", "ipvs")
	if w.problem() != "" {
		t.Errorf("problem %q", w.problem())
	}
}
