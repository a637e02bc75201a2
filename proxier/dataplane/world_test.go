package dataplane

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// journal has what the Dataplane asks of both engines, in order.
type journal []string

func (j *journal) note(format string, args ...any) { *j = append(*j, fmt.Sprintf(format, args...)) }

// rulesInMemory is the nft engine over a kernel in memory.
type rulesInMemory struct {
	*nft.Engine
	kernel *memkernel.NFTables
}

func inMemory() *rulesInMemory { return rulesOver(&memkernel.NFTables{}) }

func rulesOver(k *memkernel.NFTables) *rulesInMemory {
	e, err := nft.New(k, nft.Options{})
	if err != nil {
		panic(err) // this kernel refuses no reading
	}
	return &rulesInMemory{e, k}
}

// serversInMemory is the IPVS engine over a kernel in memory.
type serversInMemory struct {
	*ipvsctl.Engine
	kernel *memkernel.IPVS
}

func serversOver(k *memkernel.IPVS) *serversInMemory {
	e, err := ipvsctl.New(options(), k)
	if err != nil {
		panic(err) // this kernel refuses no reading
	}
	return &serversInMemory{e, k}
}

// ruleset is the nft engine in memory, with a journal and with faults.
type ruleset struct {
	*rulesInMemory
	journal *journal
	fail    int  // applies to refuse
	refuse  bool // guards
	stuck   bool // the apply after the next Unguard fails
	globals contents.Globals
}

func (r *ruleset) SetGlobals(g contents.Globals) {
	r.globals = g
	r.rulesInMemory.SetGlobals(g)
}

func (r *ruleset) Guard(addrs []netip.Addr) (bool, error) {
	if r.refuse {
		return false, errors.New("injected: no guard")
	}
	if len(addrs) > 0 {
		r.journal.note("guard %v", addrs)
	}
	return r.rulesInMemory.Guard(addrs)
}

func (r *ruleset) Unguard(addrs []netip.Addr) {
	if len(addrs) > 0 {
		r.journal.note("unguard %v", addrs)
		if r.stuck {
			r.stuck, r.fail = false, 1
		}
	}
	r.rulesInMemory.Unguard(addrs)
}

func (r *ruleset) Apply() (nft.Result, error) {
	if r.fail > 0 {
		r.fail--
		r.journal.note("apply refused")
		return nft.Result{Outcome: kernel.Rejected}, errors.New("injected: the kernel refuses")
	}
	r.journal.note("apply")
	return r.rulesInMemory.Apply()
}

// balancer is the IPVS engine in memory, with a journal and with faults.
type balancer struct {
	*serversInMemory
	journal *journal
	refuse  string // part of a name whose virtual servers the kernel refuses
	fail    error  // of Remove and Tick
	damaged bool   // somebody else changed something
	deaf    error  // of Intact
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
	return b.serversInMemory.Set(name, servers)
}

func (b *balancer) refuses(name string) bool {
	return b.refuse != "" && strings.Contains(name, b.refuse)
}

func (b *balancer) Delete(name string) {
	delete(b.wanted, name)
	b.serversInMemory.Delete(name)
}

func (b *balancer) Add(now time.Time) (ipvsctl.Result, error) {
	b.journal.note("add")
	return b.serversInMemory.Add(now)
}

func (b *balancer) Remove(now time.Time) (ipvsctl.Result, error) {
	b.journal.note("remove")
	r, err := b.serversInMemory.Remove(now)
	return b.faulty(r, err)
}

func (b *balancer) Tick(now time.Time) (ipvsctl.Result, error) {
	return b.faulty(b.serversInMemory.Tick(now))
}

func (b *balancer) faulty(r ipvsctl.Result, err error) (ipvsctl.Result, error) {
	if b.fail != nil {
		r.Failures = append(r.Failures, ipvsctl.Failure{Key: webKey(), Err: b.fail})
		return r, b.fail
	}
	return r, err
}

func (b *balancer) Intact(bool) (bool, error) { return !b.damaged, b.deaf }

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
	w.rules = &ruleset{rulesInMemory: inMemory(), journal: &w.journal}
	if !first {
		w.rules.SetGlobals(contents.Globals{IPVS: true})
		if _, err := w.rules.rulesInMemory.Apply(); err != nil {
			t.Fatal(err)
		}
		w.rules.rulesInMemory = rulesOver(w.rules.kernel)
	}
	w.start(serversOver(memkernel.NewIPVS()))
	w.ask("lc")
	return w
}

func options() ipvsctl.Options {
	return ipvsctl.Options{GracefulPeriod: time.Hour, Exclude: []netip.Prefix{netip.MustParsePrefix("10.97.0.0/16")}}
}

// start makes the Dataplane over an IPVS engine.
func (w *world) start(m *serversInMemory) {
	w.balancer = &balancer{serversInMemory: m, journal: &w.journal, wanted: map[string][]ipvsctl.VirtualServer{}}
	w.Dataplane = New(Options{
		Ruleset: w.rules, Balancer: w.balancer,
		Scheduling: Scheduling{Backend: config.BackendHybrid, Available: ipvsctl.Schedulers()},
	})
	w.SetEnvironment(Environment{Globals: Globals{NodePortAddresses: addrs("192.168.7.1")}, ExternalCIDRs: externalCIDRs})
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
		Frontends: []plan.Frontend{at(plan.ClusterIP, clusterIP, serviceport.ClusterPool)},
	}
	for _, ip := range external {
		port.Frontends = append(port.Frontends, at(plan.LoadBalancer, ip, serviceport.ClusterPool))
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
	listing, err := w.rules.kernel.List(func(name string) bool { return name == "default/web:http" })
	if err != nil || len(listing.Frontends) == 0 {
		t.Fatalf("no frontends: %v", err)
	}
	fe := listing.Frontends[0]
	virtual := strings.Contains(w.balancer.kernel.String(), "10.96.0.1:80") && w.balancer.wanted[webPort] != nil
	switch {
	case fe.IPVS && fe.Pool == program.NoPool && virtual:
		return "ipvs"
	case !fe.IPVS && fe.Pool == program.ClusterPool && !virtual:
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
func leftover(t *testing.T) *serversInMemory {
	t.Helper()
	m := serversOver(memkernel.NewIPVS())
	v := ipvsctl.VirtualServer{Key: ipvsctl.Key{Addr: netip.MustParseAddr("10.96.0.77"), Port: 80, Protocol: ipvsctl.TCP}, Local: true, Scheduler: "rr"}
	if err := m.Set("gone", []ipvsctl.VirtualServer{v}); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Add(time.Now()); err != nil {
		t.Fatal(err)
	}
	return serversOver(m.kernel)
}
