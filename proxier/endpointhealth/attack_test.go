package endpointhealth

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// forbidden is an address that this node must not ask.
var forbidden = netip.MustParseAddrPort("168.63.129.16:8080")

// TestForgedNodeName: a tenant names the dead node of another endpoint, or any node that works, in the slice of an address that
// this node must not ask. It is asked neither as a sibling of the dead endpoint, nor as a witness, nor after a restart.
func TestForgedNodeName(t *testing.T) {
	var asked []netip.AddrPort
	w := newWorld(t, func(o *Options) {
		o.Ask = func(_ context.Context, q *Question) Answer { asked = append(asked, q.At); return Answer{} }
	})
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), forbidden}, nil)
	_, list := w.Store.Service(web)
	list[0].Endpoints[1].Node = list[0].Endpoints[0].Node
	if found := w.findSiblings(map[string]bool{list[0].Endpoints[0].Node: true}); len(found) != 1 {
		t.Errorf("%v are asked with the dead endpoint, want only that one", found)
	}
	list[0].Endpoints = list[0].Endpoints[1:]
	if found := w.witnesses(nil); len(found) > 0 {
		t.Errorf("%v are witnesses", found)
	}
	go w.inquire(t.Context(), answered{inquiry: inquiry{At: forbidden}})
	select {
	case a := <-w.Monitor.answers:
		if len(asked) > 0 || !a.answer.Good() {
			t.Errorf("asked %v: %+v; who must not be asked counts as good", asked, a.answer)
		}
	case <-time.After(10 * time.Second):
		t.Error("no answer")
	}
}

// TestTranslated: the node does not ask where a Service is served, from before the kernel has it until after it has lost it.
// Other ports of the address may be asked, so nobody ends the checks of another tenant by an external IP.
func TestTranslated(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	to := netip.MustParseAddrPort("198.51.100.7:80")
	p := &plan.Service{Name: web, Ports: []plan.Port{{Frontends: []plan.Frontend{{Kind: plan.ExternalIP, Addr: to.Addr(), Port: to.Port()}}}}}
	refused := func(at netip.AddrPort) bool { return w.permit.refuses(at) != "" }
	if refused(to) {
		t.Error("refused before a Service is there")
	}
	w.Serves(p)
	w.Serves(p)
	if !refused(to) || refused(netip.AddrPortFrom(to.Addr(), 81)) {
		t.Errorf("the port of a Service is refused: %t, another one: %t", refused(to), refused(netip.AddrPortFrom(to.Addr(), 81)))
	}
	w.Remove(web)
	if now := time.Now(); !refused(to) || w.permit.translated.has(to, now.Add(lingering)) {
		t.Error("it is not refused for as long as the kernel may have the Service, or for longer")
	}
	w.permit.translated.set(web, nil, time.Now().Add(2*lingering))
	if n := len(w.permit.translated.uses) + len(w.permit.translated.of); n > 0 {
		t.Errorf("%d addresses stay in memory", n)
	}
}

// TestSuspicionsLeaveTimeForChecks: a tenant has a thousand endpoints that refuse connections and never answered this node, so
// they are asked again and again. That costs a fiftieth of a core at most, and the check of another tenant is on time.
func TestSuspicionsLeaveTimeForChecks(t *testing.T) {
	const cost, seconds = 400 * time.Microsecond, 100
	w := newWorld(t, func(o *Options) { o.Cost = func(state.CheckKind) time.Duration { return cost } })
	check := tcpCheck()
	check.Interval = time.Second
	w.checker.Set(state.Name{Namespace: "bank", Name: "web"}, check, targets(1), start)
	for i := range maxOfTenant {
		end := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
		w.detector.Suspect(end, Unanswered, []Member{{Service: web}}, start)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	inquiries, checks := 0, 0
	for now := start; now.Before(start.Add(seconds * time.Second)); now = now.Add(checkPause) {
		for list := w.detector.Due(now); len(list) > 0; list = w.detector.Due(now) {
			for _, q := range list {
				if q.Witnesses {
					w.detector.Witnessed(SomeAnswer, now)
					continue
				}
				inquiries++
				w.detector.Answered(q.At, Refused, false, now)
			}
		}
		for _, q := range w.checker.Due(now) {
			checks++
			w.checker.Answered(q, answerIs(true), now)
		}
	}
	if spent := time.Duration(inquiries) * cost; spent > seconds*time.Second/40 || inquiries < maxOfTenant {
		t.Errorf("%d questions of suspicion cost %s in %d s", inquiries, spent, seconds)
	}
	w.ask(ctx, true)
	if w.rates.node.used > 2*cost || checks < seconds*9/10 {
		t.Errorf("%d checks, and %s are used", checks, w.rates.node.used)
	}
}

// TestPaceOfNamespace: the Services of a namespace share what a namespace may have planned because of flapping endpoints, and
// none of them is forgotten.
func TestPaceOfNamespace(t *testing.T) {
	const services, size, seconds = 8, 12_000, 80
	w := newWorld(t, checksOnly)
	choices := make([]plan.Choice, size)
	for i := range choices {
		choices[i] = plan.Choice{Protocol: state.TCP, At: target(i).At}
	}
	told := map[state.Name]int{}
	for i := range services {
		svc := shop(func(s *state.Service) { s.Name.Name = string(rune('a' + i)) })
		w.Store.SetService(svc, nil)
		w.Set(svc, nil, choices)
		told[svc.Name] = 0
	}
	before, first := map[state.Name]state.Health{}, state.Name{Namespace: web.Namespace, Name: "a"}
	begin := time.Now().Add(time.Hour)
	for now := begin; now.Before(begin.Add(seconds * time.Second)); now = now.Add(time.Second) {
		w.mu.Lock()
		k := w.checker.of(first, w.services[first].check, target(int(now.Sub(begin).Seconds())))
		k.reached = true
		w.checker.turn(k, true, now)
		w.mu.Unlock()
		w.publish(now)
		for name := range told {
			if h := w.Store.Health(name); !slices.Equal(h, before[name]) {
				told[name]++
				before[name] = h
			}
		}
	}
	sum := 0
	for name, n := range told {
		if sum += n; n == 0 {
			t.Errorf("%s is never told", name)
		}
	}
	if most := int((seconds*time.Second+paceBurst)/paceOf(size)) + 1; sum > most || sum < most/2 {
		t.Errorf("the store heard %d changes in %d s, at most %d are allowed", sum, seconds, most)
	}
}

// TestServiceJoinsFailure: a Service gets an endpoint that failed before, for another Service. It is left out there, too.
func TestServiceJoinsFailure(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	pool := []netip.AddrPort{at(1), at(2), at(3)}
	w.serve(&state.Service{Name: web}, pool, nil)
	w.wants("all are good", w.settle(web), pool...)
	w.answers[at(1)] = NoAnswer
	w.suspectAt(at(1))
	w.wants("one fails", w.settle(web), pool[1:]...)
	later := state.Name{Namespace: "bank", Name: "later"}
	w.serve(&state.Service{Name: later}, pool, nil)
	w.wants("the later Service", w.settle(later), pool[1:]...)
	delete(w.answers, at(1))
	w.wants("it is good again", w.settle(later), pool...)
	w.wants("also for the first Service", w.settle(web), pool...)
}

// TestBorrowedEndpoints: a tenant has as many failed endpoints as he can have, all his questions are on their way, and he wrote
// the endpoint of another into his slices as well. It comes under suspicion all the same, and is asked at once.
func TestBorrowedEndpoints(t *testing.T) {
	tenant, bank := state.Name{Namespace: "a-tenant", Name: "web"}, state.Name{Namespace: "bank", Name: "web"}
	d := newDetector(func() float64 { return 0 })
	spent := map[string]bool{}
	d.may = func(namespace string, _ time.Time) bool { return !spent[namespace] }
	both := []Member{{Service: tenant}, {Service: bank}}
	d.Suspect(at(200), Unanswered, both, start)
	if list := d.Due(start); len(list) != 1 {
		t.Fatalf("asked: %v", list)
	}
	for i := range maxOfTenant {
		end := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
		d.Suspect(end, Unanswered, []Member{{Service: tenant}}, start)
	}
	d.Due(start)
	spent[tenant.Namespace] = true
	d.Suspect(at(1), Unanswered, both, start)
	d.Answered(at(200), NoAnswer, true, start)
	asked := map[netip.AddrPort]bool{}
	for _, q := range d.Due(start) {
		asked[q.At] = true
	}
	if !asked[at(1)] || !asked[at(200)] || len(asked) > 3 { // and witnesses
		t.Errorf("asked: %v, want the endpoints of the other namespace", asked)
	}
	l := newFirstLooks()
	var many []netip.AddrPort
	for i := range 10_000 {
		many = append(many, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 8080))
	}
	l.set(tenant, many)
	l.set(bank, []netip.AddrPort{many[9000]})
	if first := l.due(start); !slices.Contains(first, many[9000]) {
		t.Errorf("first looks at %v, want one at the endpoint of the other namespace", first)
	}
}

// TestMemoryIsShared: one tenant has more failures than are saved. Those of another are saved all the same; what could not be
// saved is saved as soon as there is room on the disk, without another change.
func TestMemoryIsShared(t *testing.T) {
	disk := &fullDisk{full: true}
	w := newWorld(t, func(o *Options) { o.Memory = disk })
	many := make(state.Health, 6000)
	for i := range many {
		many[i] = state.Failure{Protocol: state.TCP, At: target(i).At}
	}
	for i := range 20 {
		w.services[state.Name{Namespace: "tenant", Name: string(rune('a' + i))}] = &watched{published: many}
	}
	w.services[web] = &watched{published: many[:1]}
	w.unsaved = true
	now := time.Now()
	for range 3 {
		now = now.Add(time.Hour)
		w.save(now)
	}
	if disk.tries != 3 {
		t.Errorf("tried %d times to save", disk.tries)
	}
	disk.full = false
	w.save(now.Add(time.Hour))
	own := slices.ContainsFunc(disk.saved, func(r Remembered) bool { return r.Service == web })
	if len(disk.saved) != maxRemembered || !own {
		t.Errorf("%d failures are saved, the one of another tenant: %t", len(disk.saved), own)
	}
	w.save(now.Add(2 * time.Hour))
	if disk.tries != 4 {
		t.Error("saved again without a change")
	}
}

// fullDisk is a Memory that may have no room.
type fullDisk struct {
	full  bool
	tries int
	saved []Remembered
}

func (d *fullDisk) Load() ([]Remembered, error) { return nil, nil }

func (d *fullDisk) Save(list []Remembered) error {
	if d.tries++; d.full {
		return errors.New("no space left on device")
	}
	d.saved = list
	return nil
}

// TestGreedyTenantsLeaveRoom: tenants have as many endpoints under suspicion as they can, and that of another one finds room.
func TestGreedyTenantsLeaveRoom(t *testing.T) {
	d := newDetector(func() float64 { return 0 })
	for i := range 8 * maxOfTenant {
		end := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
		greedy := state.Name{Namespace: string(rune('a' + i/maxOfTenant)), Name: "web"}
		d.Suspect(end, Unanswered, []Member{{Service: greedy}}, start)
	}
	if n := d.ofTenant["a"]; n != maxOfTenant {
		t.Errorf("the first tenant has %d", n)
	}
	if d.Suspect(at(1), Unanswered, []Member{{Service: web}}, start); !d.Knows(at(1)) {
		t.Errorf("no room beside %d", len(d.tracked))
	}
}

// TestReportsAreGathered: each report lists all suspicions, so there are few, however many answers there are.
func TestReportsAreGathered(t *testing.T) {
	w := newWorld(t, checksOnly)
	var pool []netip.AddrPort
	for i := range 200 {
		pool = append(pool, at(byte(i)))
	}
	w.serve(shop(func(s *state.Service) { s.Check = tcpCheck(); s.Check.Interval = time.Second }), pool, nil)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for i := range w.reports {
		passed += w.reports[i].Checks.Passed
	}
	if most := int(time.Since(began)/lookPeriod) + 1; len(w.reports) > most || passed < 20 {
		t.Errorf("%d reports of %d answers, at most %d", len(w.reports), passed, most)
	}
}
