package proxier

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// balancer is an IPVS engine that keeps a journal of what the loop asks of both engines and fails when told to. It shows
// order and faults; that the real engine does what it is asked for is tested in package ipvsctl and with packets.
type balancer struct {
	journal *[]string
	wanted  map[string][]ipvsctl.VirtualServer
	added   map[netip.Addr]bool // addresses that are local
	local   []netip.Addr        // of an earlier process
	foreign map[ipvsctl.Key]bool
	serving map[ipvsctl.Key]string // scheduler of what the kernel has and nobody has given up
	exclude netip.Prefix
	refuse  string // part of a name whose virtual servers the kernel refuses
	busy    bool   // something drains
	broken  bool   // someone has changed something
	release []netip.Addr
}

func (b *balancer) note(format string, args ...any) {
	*b.journal = append(*b.journal, fmt.Sprintf(format, args...))
}

func (b *balancer) Set(name string, servers []ipvsctl.VirtualServer) error {
	b.wanted[name] = servers
	return nil
}

func (b *balancer) Delete(name string)    { delete(b.wanted, name) }
func (b *balancer) Intact() (bool, error) { return !b.broken, nil }

func (b *balancer) Obstacle(list []ipvsctl.VirtualServer) error {
	for _, v := range list {
		switch {
		case b.exclude.IsValid() && b.exclude.Contains(v.Addr):
			return &ipvsctl.KeyError{Key: v.Key, Err: ipvsctl.ErrExcluded}
		case b.foreign[v.Key]:
			return &ipvsctl.KeyError{Key: v.Key, Err: ipvsctl.ErrForeign}
		case b.serving[v.Key] != "" && b.serving[v.Key] != v.Scheduler:
			return &ipvsctl.KeyError{Key: v.Key, Err: ipvsctl.ErrReschedules}
		}
	}
	return nil
}

func (b *balancer) Tick(time.Time) (r ipvsctl.Result, err error) {
	if !b.busy {
		return r, nil
	}
	b.note("tick")
	return b.result(), nil
}

func (b *balancer) Coming() (out []netip.Addr) {
	out = slices.Clone(b.local)
	for _, servers := range b.wanted {
		for _, v := range servers {
			if v.Local && !b.added[v.Addr] && !slices.Contains(out, v.Addr) {
				out = append(out, v.Addr)
			}
		}
	}
	slices.SortFunc(out, netip.Addr.Compare)
	return out
}

func (b *balancer) Add(time.Time) (r ipvsctl.Result, err error) {
	b.note("add")
	coming := b.Coming()
	for name, servers := range b.wanted {
		if b.refuse != "" && strings.Contains(name, b.refuse) {
			r.Failures = append(r.Failures, ipvsctl.Failure{Name: name, Err: errors.New("injected: the kernel refuses")})
			continue
		}
		for _, v := range servers {
			b.added[v.Addr] = b.added[v.Addr] || v.Local
		}
	}
	for _, a := range coming {
		if !b.added[a] && !slices.Contains(b.local, a) {
			r.NotLocal = append(r.NotLocal, a)
		}
	}
	return r, nil
}

func (b *balancer) Remove(time.Time) (ipvsctl.Result, error) {
	b.note("remove")
	b.local = nil
	return b.result(), nil
}

func (b *balancer) result() (r ipvsctl.Result) {
	for _, a := range b.release {
		r.Operations = append(r.Operations, ipvsctl.Operation{Kind: ipvsctl.DeleteAddress, Server: &ipvsctl.VirtualServer{Key: ipvsctl.Key{Addr: a}}})
	}
	b.release = nil
	return r
}

// journaled is a ruleset that writes to the same journal.
type journaled struct {
	*faulty
	journal *[]string
	table   bool // there is one
	guarded []netip.Addr
	refuse  bool // guards
	stuck   bool // the next guards to be taken off stay at first
}

func (j *journaled) note(what string) { *j.journal = append(*j.journal, what) }

func (j *journaled) Guard(addrs []netip.Addr) (bool, error) {
	if j.refuse {
		return false, errors.New("injected: no guard")
	}
	if len(addrs) > 0 {
		j.note(fmt.Sprint("guard ", addrs))
		j.guarded = append(j.guarded, addrs...)
	}
	return j.table, nil
}

func (j *journaled) Unguard(addrs []netip.Addr) {
	if len(addrs) > 0 {
		j.note(fmt.Sprint("unguard ", addrs))
		if j.stuck {
			j.stuck, j.fail = false, 1
		}
	}
}

func (j *journaled) Apply() (nft.Result, error) {
	r, err := j.faulty.Apply()
	if err != nil {
		j.note("apply refused")
		return r, err
	}
	j.note("apply")
	j.table = true
	return r, err
}

type ipvsWorld struct {
	*world
	balancer *balancer
	rules    *journaled
	journal  []string
}

// newIPVSWorld has a table in the kernel already, and one Service that asks for a scheduler of IPVS.
func newIPVSWorld(t *testing.T) *ipvsWorld {
	t.Helper()
	w := &ipvsWorld{world: newWorld(t)}
	w.rules = &journaled{faulty: w.world.rules, journal: &w.journal, table: true}
	w.balancer = &balancer{
		journal: &w.journal, wanted: map[string][]ipvsctl.VirtualServer{}, added: map[netip.Addr]bool{}, foreign: map[ipvsctl.Key]bool{},
	}
	options := w.Options
	options.Ruleset, options.Balancer = w.rules, w.balancer
	options.Scheduling = Scheduling{Backend: config.BackendHybrid, Available: ipvsctl.Schedulers()}
	w.Proxier = New(options)
	w.ask("lc")
	w.store.SetSlice(slice("web", "10.0.0.1", "10.0.0.2"), nil)
	w.store.MarkSynced()
	return w
}

const webPort = "ip default/web:http"

// ask has the Service ask for a scheduler.
func (w *ipvsWorld) ask(scheduler string, external ...string) {
	svc := service("web", "10.96.0.1", 1, external...)
	svc.Balancing.Scheduler = scheduler
	w.store.SetService(svc, nil)
}

// pass does one and compares the journal.
func (w *ipvsWorld) pass(t *testing.T, when, want string) {
	t.Helper()
	w.journal = nil
	_ = w.Once()
	if got := strings.Join(w.journal, ", "); got != want {
		t.Fatalf("%s:\n got %s\nwant %s", when, got, want)
	}
}

// served says which engine serves the port.
func (w *ipvsWorld) served() string {
	fe := w.rules.ports[webPort].Frontends[0]
	_, virtual := w.balancer.wanted[webPort]
	switch {
	case fe.IPVS && fe.Pool == nft.NoPool && virtual:
		return "ipvs"
	case !fe.IPVS && fe.Pool == nft.ClusterPool && !virtual:
		return "nft"
	}
	return fmt.Sprintf("both or none: %+v, %t", fe, virtual)
}

func (w *ipvsWorld) wantServed(t *testing.T, when, want string) {
	t.Helper()
	if got := w.served(); got != want {
		t.Fatalf("%s: served by %s, want %s", when, got, want)
	}
}

func (w *ipvsWorld) problem() string {
	var all []string
	for _, p := range w.watcher.problems {
		all = append(all, p.Reason)
	}
	return strings.Join(all, "|")
}

// TestOrderOfEngines: no connection fails while a Service moves, and no address is local without its guard.
func TestOrderOfEngines(t *testing.T) {
	w := newIPVSWorld(t)
	w.balancer.local = addrs("10.96.0.77")
	w.pass(t, "first pass over the table of an earlier process", "guard [10.96.0.1 10.96.0.77], add, apply, remove")
	w.wantServed(t, "first pass", "ipvs")
	w.pass(t, "nothing changed", "add, apply, remove")
	w.ask("lc", "203.0.113.1")
	w.pass(t, "another address", "guard [203.0.113.1], add, apply, remove")
	w.ask("")
	w.balancer.release = addrs("203.0.113.1")
	w.pass(t, "to nft", "add, apply, remove, unguard [203.0.113.1], apply")
	w.wantServed(t, "moved", "nft")
}

// TestSchedulerOfAVirtualServerChanges: the kernel refuses connections while it changes it, so nft serves in between.
func TestSchedulerOfAVirtualServerChanges(t *testing.T) {
	w := newIPVSWorld(t)
	key := ipvsctl.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: ipvsctl.TCP}
	w.balancer.serving = map[ipvsctl.Key]string{key: "rr"}
	w.pass(t, "first", "add, apply, remove")
	w.wantServed(t, "while the old one is given up", "nft")
	delete(w.balancer.serving, key)
	w.tick()
	w.wantServed(t, "afterwards", "ipvs")
	w.journal = nil
	w.tick()
	if len(w.journal) > 0 || w.problem() != "" {
		t.Errorf("then: %v, problem %q", w.journal, w.problem())
	}
}

func TestNoTableYet(t *testing.T) {
	w := newIPVSWorld(t)
	w.rules.table = false
	w.pass(t, "first pass of all", "guard [10.96.0.1], apply, add, remove")
	w.wantServed(t, "first pass", "ipvs")
}

func TestNoTableAndIPVSRefuses(t *testing.T) {
	w := newIPVSWorld(t)
	w.rules.table, w.balancer.refuse = false, "web"
	w.pass(t, "first pass of all", "guard [10.96.0.1], apply, add, unguard [10.96.0.1], apply, remove")
	w.wantServed(t, "refused", "nft")
}

func TestNothingIsRemovedBeforeNftHasIt(t *testing.T) {
	w := newIPVSWorld(t)
	w.pass(t, "first", "guard [10.96.0.1], add, apply, remove")
	w.ask("")
	w.rules.fail = 1
	w.pass(t, "nft refuses", "add, apply refused")
	w.balancer.busy = true
	w.tick()
	w.pass(t, "retry", "add, apply, remove")
	w.rules.refuse = true
	w.ask("lc", "203.0.113.1")
	w.pass(t, "no guard", "")
	if w.pendingServices() != 1 {
		t.Error("the change was forgotten although there is no guard")
	}
}

// TestIPVSRefuses: a port that IPVS cannot serve is served by nft in the same pass, with a problem, until it can.
func TestIPVSRefuses(t *testing.T) {
	w := newIPVSWorld(t)
	w.balancer.refuse = "web"
	w.pass(t, "refused", "guard [10.96.0.1], add, unguard [10.96.0.1], apply, remove")
	w.wantServed(t, "refused", "nft")
	if !strings.Contains(w.problem(), "injected: the kernel refuses; nft serves this port") {
		t.Errorf("problems: %q", w.problem())
	}
	w.balancer.refuse = ""
	w.journal = nil
	w.tick()
	w.wantServed(t, "not tried again at once", "nft")
	w.later(tryAgain)
	w.wantServed(t, "tried again", "ipvs")
	if w.problem() != "" {
		t.Errorf("the problem stays: %q", w.problem())
	}
}

// later lets time pass for what was refused, with a tick at its end, and says whether IPVS was tried.
func (w *ipvsWorld) later(d time.Duration) (tried bool) {
	w.ipvs.retried = time.Time{}
	for key, s := range w.ipvs.refused {
		s.since = s.since.Add(-d)
		w.ipvs.refused[key] = s
	}
	w.journal = nil
	w.tick()
	return slices.Contains(w.journal, "add")
}

// triedAfter expects that IPVS is tried after a time, not half a minute before.
func (w *ipvsWorld) triedAfter(t *testing.T, when string, d time.Duration) {
	t.Helper()
	early := w.later(d - 30*time.Second)
	if late := w.later(30 * time.Second); early || !late {
		t.Fatalf("%s: IPVS was tried half a minute before %s: %t, and then: %t", when, d, early, late)
	}
}

// TestWhatIsRefusedForGood is tried less and less often, and as at first when something has changed.
func TestWhatIsRefusedForGood(t *testing.T) {
	w := newIPVSWorld(t)
	w.balancer.refuse = "web"
	_ = w.Once()
	for _, minutes := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
		w.triedAfter(t, "always the same", minutes*time.Minute)
		w.wantServed(t, "refused", "nft")
	}
	w.store.SetSlice(slice("web", "10.0.0.1", "10.0.0.3"), nil)
	w.pass(t, "another endpoint soon after it was refused", "add, apply, remove")
	w.triedAfter(t, "another endpoint", time.Minute)
	w.triedAfter(t, "another endpoint, once more", time.Minute)
	w.triedAfter(t, "the same since", 2*time.Minute)
	w.later(3 * time.Minute)
	w.ask("lc", "203.0.113.1")
	w.pass(t, "another address long after", "guard [10.96.0.1 203.0.113.1], add, unguard [10.96.0.1 203.0.113.1], apply, remove")
	w.triedAfter(t, "another address", time.Minute)

	w.balancer.refuse = ""
	w.triedAfter(t, "taken", 2*time.Minute)
	w.wantServed(t, "taken", "ipvs")
	if len(w.ipvs.refused)+len(w.ipvs.trying) > 0 {
		t.Errorf("still remembered: %v %v", w.ipvs.refused, w.ipvs.trying)
	}
	w.balancer.refuse = "web"
	_ = w.Once()
	w.triedAfter(t, "refused once more", time.Minute)
}

// TestOnlyWhatIPVSRefusesLosesItsGuard: what others listen to at that address answers again, and only there.
func TestOnlyWhatIPVSRefusesLosesItsGuard(t *testing.T) {
	w := newIPVSWorld(t)
	w.balancer.local = addrs("10.96.0.77")
	w.balancer.refuse = "shop"
	shop := service("shop", "10.96.0.2", 2)
	shop.Balancing.Scheduler = "lc"
	w.store.SetService(shop, nil)
	w.store.SetSlice(slice("shop", "10.0.0.3"), nil)
	w.pass(t, "one of two refused", "guard [10.96.0.1 10.96.0.2 10.96.0.77], add, unguard [10.96.0.2], apply, remove")
	w.wantServed(t, "the other one", "ipvs")
}

func TestForeignVirtualServer(t *testing.T) {
	w := newIPVSWorld(t)
	key := ipvsctl.Key{Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: ipvsctl.TCP}
	w.balancer.foreign[key] = true
	w.pass(t, "foreign", "add, apply, remove")
	w.wantServed(t, "foreign", "nft")
	if !strings.Contains(w.problem(), "virtual server 10.96.0.1:80/tcp: another tool has made this virtual server") {
		t.Errorf("problems: %q", w.problem())
	}
	delete(w.balancer.foreign, key)
	w.tick()
	w.wantServed(t, "gone", "ipvs")
	if w.problem() != "" {
		t.Errorf("the problem stays: %q", w.problem())
	}
}

func TestExcludedAddress(t *testing.T) {
	w := newIPVSWorld(t)
	w.balancer.exclude = netip.MustParsePrefix("10.96.0.0/16")
	w.pass(t, "excluded", "add, apply, remove")
	w.wantServed(t, "excluded", "nft")
	if !strings.Contains(w.problem(), "--ipvs-exclude-cidrs") {
		t.Errorf("problems: %q", w.problem())
	}
}

func TestVirtualServersFollowTheHostsAddresses(t *testing.T) {
	w := newIPVSWorld(t)
	w.ask("lc", "203.0.113.1")
	w.pass(t, "first", "guard [10.96.0.1 203.0.113.1], add, apply, remove")
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
	w.store.SetHostAddresses(addrs("203.0.113.1", "fe80::1"))
	w.pass(t, "the host has an external address", "add, apply, remove")
	if got := local(); got != "10.96.0.1=true 203.0.113.1=false" {
		t.Fatal(got)
	}
	w.store.SetHostAddresses(addrs("203.0.113.1", "fe80::1", "fe80::2"))
	w.pass(t, "a pod came", "add, apply, remove")
	if n := w.watcher.passes[len(w.watcher.passes)-1].Services; n != 0 {
		t.Errorf("%d Services planned for a link-local address", n)
	}
}

func TestEndOfABalancedService(t *testing.T) {
	w := newIPVSWorld(t)
	w.pass(t, "first", "guard [10.96.0.1], add, apply, remove")
	if r := w.watcher.passes[0]; r.IPVS.Frontends[0] != 1 || r.IPVS.Endpoints != 2 || r.NFT != (Totals{}) {
		t.Errorf("totals %+v, %+v", r.NFT, r.IPVS)
	}
	w.store.DeleteService(state.Name{Namespace: "default", Name: "web"})
	w.pass(t, "deleted", "add, apply, remove")
	if len(w.balancer.wanted)+len(w.ipvs.names)+len(w.rules.ports) != 0 {
		t.Errorf("left: %v, %v, %v", w.balancer.wanted, w.ipvs.names, w.rules.ports)
	}
	if r := w.watcher.passes[1]; r.IPVS != (Totals{}) {
		t.Errorf("totals %+v", r.IPVS)
	}
}

// TestGuardsThatStay: a guard that could not be taken off has the pass repeated, whether it was in a pass or between two.
func TestGuardsThatStay(t *testing.T) {
	w := newIPVSWorld(t)
	w.pass(t, "first", "guard [10.96.0.1], add, apply, remove")
	w.ask("lc", "203.0.113.1")
	w.balancer.release = addrs("10.96.0.9")
	w.rules.stuck = true
	w.pass(t, "in a pass", "guard [203.0.113.1], add, apply, remove, unguard [10.96.0.9], apply refused")
	r := w.watcher.passes[1]
	if r.Err == nil || !strings.Contains(r.Err.Error(), "10.96.0.9") || r.Result.Outcome != nft.Rejected || w.failures != 1 || w.pendingServices() != 1 {
		t.Errorf("error %v, outcome %s, %d failures", r.Err, r.Result.Outcome, w.failures)
	}
	w.pass(t, "repeated", "add, apply, remove")
	if w.failures != 0 || w.pendingServices() != 0 {
		t.Errorf("%d failures in the end", w.failures)
	}

	w.balancer.busy, w.balancer.release = true, addrs("10.96.0.9")
	w.rules.stuck = true
	w.tick()
	if w.failures != 1 || !strings.Contains(w.log.String(), "10.96.0.9") {
		t.Errorf("between two passes: %d failures, log %s", w.failures, w.log)
	}
}

func TestDrainsAreFollowed(t *testing.T) {
	w := newIPVSWorld(t)
	w.pass(t, "first", "guard [10.96.0.1], add, apply, remove")
	w.journal = nil
	w.tick()
	w.balancer.busy, w.balancer.release = true, addrs("10.96.0.9")
	w.tick()
	if got := strings.Join(w.journal, ", "); got != "tick, unguard [10.96.0.9], apply" {
		t.Errorf("journal %s", got)
	}
	w.balancer.broken, w.journal = true, nil
	w.checkTables()
	if got := strings.Join(w.journal, ", "); got != "add, apply, remove" {
		t.Errorf("after interference: %s", got)
	}
}
