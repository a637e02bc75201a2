package endpointhealth

import (
	"context"
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
