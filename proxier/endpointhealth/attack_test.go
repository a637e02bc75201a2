package endpointhealth

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

var web = state.Name{Namespace: "shop", Name: "web"}

var start = time.Unix(1_000_000, 0)

// target is an endpoint that is checked by TCP.
func target(n int) probe.Target {
	return probe.Target{Protocol: state.TCP, At: numbered(n, 80)}
}

// numbered is one of very many addresses.
func numbered(n int, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), port)
}

func tcpCheck() *state.HealthCheck {
	return &state.HealthCheck{Kind: state.CheckTCP, Interval: time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
}

// forbidden is an address that this node must not ask.
var forbidden = netip.MustParseAddrPort("168.63.129.16:8080")

// TestForgedNodeName: a tenant names the dead node of another endpoint, or any node that works, in the slice of an address that
// this node must not ask. It is asked neither as a sibling of the dead endpoint, nor as a witness, nor after a restart.
func TestForgedNodeName(t *testing.T) {
	var asked []netip.AddrPort
	w := newWorld(t, func(o *Options) {
		o.Ask = func(_ context.Context, q *probe.Question) probe.Answer {
			asked = append(asked, q.At)
			return probe.Answer{}
		}
	})
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), forbidden}, nil)
	_, list := w.Store.Service(web)
	list[0].Endpoints[1].Node = list[0].Endpoints[0].Node
	if found := w.walker.endpointsOn(map[string]bool{list[0].Endpoints[0].Node: true}); len(found) != 1 {
		t.Errorf("%v are asked with the dead endpoint, want only that one", found)
	}
	list[0].Endpoints = list[0].Endpoints[1:]
	if found := w.walker.witnesses(nil); len(found) > 0 {
		t.Errorf("%v are witnesses", found)
	}
	if a := w.asks(forbidden); len(asked) > 0 || !a.Good() {
		t.Errorf("asked %v: %+v; who must not be asked counts as good", asked, a)
	}
}

// TestTranslated: the node does not ask where a Service is served, from before the kernel has it until after it has lost it.
// Other ports of the address may be asked, so nobody ends the checks of another tenant by an external IP.
func TestTranslated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(*Options) {})
		to := netip.MustParseAddrPort("198.51.100.7:80")
		p := &plan.Service{Name: web, Ports: []plan.Port{{Frontends: []plan.Frontend{{Kind: plan.ExternalIP, Frontend: serviceport.Frontend{Addr: to.Addr(), Port: to.Port()}}}}}}
		refused := func(at netip.AddrPort) bool { return w.permit.refuses(at) }
		if refused(to) {
			t.Error("refused before a Service is there")
		}
		w.Serves(p)
		w.Serves(p)
		if !refused(to) || refused(netip.AddrPortFrom(to.Addr(), 81)) {
			t.Errorf("the port of a Service is refused: %t, another one: %t", refused(to), refused(netip.AddrPortFrom(to.Addr(), 81)))
		}
		if w.Remove(web); !refused(to) {
			t.Error("it is not refused as soon as the Service is gone, and the kernel may still have it")
		}
		p.Ports[0].Frontends[0].EndPort = 90
		w.Serves(p)
		within, outside := netip.AddrPortFrom(to.Addr(), 89), netip.AddrPortFrom(to.Addr(), 91)
		if !refused(to) || !refused(within) || refused(outside) {
			t.Errorf("the first port of a range is refused: %t, another one: %t, one outside: %t", refused(to), refused(within), refused(outside))
		}
		w.Remove(web)
		<-time.After(3 * lingering)
		if refused(to) || refused(within) {
			t.Error("it is refused for longer than the kernel may have the Service")
		}
		if n := len(w.permit.uses) + len(w.permit.served) + len(w.permit.ranges); n > 0 || w.permit.sweeps {
			t.Errorf("%d addresses stay in memory; sweeps go on: %t", n, w.permit.sweeps)
		}
	})
}

// TestSuspicionsLeaveTimeForChecks: a tenant has a thousand endpoints that refuse connections and never answered this node, so
// they are asked again and again. That costs a fiftieth of a core, or a tenth with a folder, and the check of another tenant is on time.
func TestSuspicionsLeaveTimeForChecks(t *testing.T) {
	t.Run("tenants", func(t *testing.T) { suspectThousand(t, "", 0.02) })
	t.Run("folder", func(t *testing.T) { suspectThousand(t, "/etc/verdict", 0.1) })
}

func suspectThousand(t *testing.T, folder string, share float64) {
	const cost, seconds = 400 * time.Microsecond, 100
	w := newWorld(t, func(o *Options) {
		o.Settings.Manifests, o.Cost = folder, func(state.CheckKind) time.Duration { return cost }
	})
	w.checks.Reaches = func(*checks.Suspect) bool { return false }
	const many = 1024 // fewer than as many as a namespace can have
	w.checks.Set(state.Name{Namespace: "bank", Name: "web"}, checks.Active, tcpCheck(), []probe.Target{target(0)}, nil, start)
	for i := range many {
		w.checks.Suspect(numbered(i, 80), checks.Unanswered, []checks.Member{{Service: web}}, start)
	}
	inquiries, asked := 0, 0
	for now := start; now.Before(start.Add(seconds * time.Second)); now = now.Add(checkPause) {
		for list := w.checks.Due(now); len(list) > 0; list = w.checks.Due(now) {
			for _, q := range list {
				if q.Doubts != nil {
					w.checks.Witnessed(checks.SomeAnswer, now)
					continue
				}
				if q.Purpose == checks.Active {
					asked++
					w.checks.Answered(q, probe.Answer{Connected: true}, now)
					continue
				}
				inquiries++
				w.checks.Answered(q, probe.Answer{Fault: probe.Refused}, now)
			}
		}
	}
	if is := (time.Duration(inquiries) * cost).Seconds() / seconds; is > 1.25*share || is < 0.9*share {
		t.Errorf("%d questions of suspicion cost %.3f of a core, want %.3f", inquiries, is, share)
	}
	if asked < seconds*9/10 {
		t.Errorf("%d checks", asked)
	}
}

// TestChecksOfFolder: 10,000 checks by HTTP in five seconds, all of one namespace. A folder has no tenants, so they are on time; those
// of a tenant take a twentieth of a core.
func TestChecksOfFolder(t *testing.T) {
	const seconds, each, cost = 60, 2500, 90 * time.Microsecond
	check := &state.HealthCheck{Kind: state.CheckHTTP, Interval: 5 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3}
	for folder, want := range map[string]float64{"": 0.05 / cost.Seconds(), "/etc/verdict": 4 * each / check.Interval.Seconds()} {
		w := newWorld(t, func(o *Options) {
			o.Settings.Manifests, o.Cost = folder, func(state.CheckKind) time.Duration { return cost }
		})
		for i := range 4 {
			targets := make([]probe.Target, each)
			for j := range targets {
				targets[j] = target(i*each + j)
			}
			if _, left := w.checks.Set(state.Name{Namespace: "default", Name: string(rune('a' + i))}, checks.Active, check, targets, nil, start); left > 0 {
				t.Errorf("folder %q: no room for %d checks", folder, left)
			}
		}
		asked := 0
		for now := start; now.Before(start.Add(seconds * time.Second)); now = now.Add(checkPause) {
			for _, q := range w.checks.Due(now) {
				asked++
				w.checks.Answered(q, probe.Answer{Connected: true}, now)
			}
		}
		if rate := float64(asked) / seconds; rate < 0.9*want || rate > 1.1*want {
			t.Errorf("folder %q: %.0f checks a second, want %.0f", folder, rate, want)
		}
	}
}

// TestServiceJoinsFailure: a Service gets an endpoint that failed before, for another Service. It is left out there, too.
func TestServiceJoinsFailure(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	pool := []netip.AddrPort{at(1), at(2), at(3)}
	w.serve(&state.Service{Name: web}, pool, nil)
	w.wants("all are good", w.settle(web), pool...)
	w.answers[at(1)] = probe.NoAnswer
	w.suspectAt(at(1))
	w.wants("one fails", w.settle(web), pool[1:]...)
	later := state.Name{Namespace: "bank", Name: "later"}
	w.serve(&state.Service{Name: later}, pool, nil)
	w.wants("the later Service", w.settle(later), pool[1:]...)
	delete(w.answers, at(1))
	w.wants("it is good again", w.settle(later), pool...)
	w.wants("also for the first Service", w.settle(web), pool...)
}

// TestBorrowedLooks: a tenant wrote the endpoint of another into his slices as well, among very many. It is looked at all the same.
func TestBorrowedLooks(t *testing.T) {
	tenant, bank := state.Name{Namespace: "a-tenant", Name: "web"}, state.Name{Namespace: "bank", Name: "web"}
	l := newLooks(t)
	var many []probe.Target
	for i := range 10_000 {
		many = append(many, target(i))
	}
	l.look(tenant, many, nil, start)
	l.look(bank, many[9000:9001], nil, start)
	if first := l.checks.Due(start); !slices.ContainsFunc(first, func(q checks.Question) bool { return q.Target == many[9000] }) {
		t.Errorf("first looks at %v, want one at the endpoint of the other namespace", first)
	}
}

// TestReportsAreGathered: each report lists all suspicions, so there are few, however many answers there are.
func TestReportsAreGathered(t *testing.T) {
	w := newWorld(t, checksOnly)
	var pool []netip.AddrPort
	for i := range 200 {
		pool = append(pool, at(byte(i)))
	}
	w.serve(shop(func(s *state.Service) { s.Check = tcpCheck() }), pool, nil)
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	passed := 0
	for i := range w.reports {
		passed += w.reports[i].Answers[Answer{Kind: state.CheckTCP}]
	}
	if most := int(time.Since(began)/noticePeriod) + 1; len(w.reports) > most || passed < 20 {
		t.Errorf("%d reports of %d answers, at most %d", len(w.reports), passed, most)
	}
}

// TestLargeServiceUnderSuspicion: a tenant has a Service with very many endpoints, and thousands of them come under suspicion. To
// find out whose they are, and to write another Service with the same endpoints, takes no time that others would notice.
func TestLargeServiceUnderSuspicion(t *testing.T) {
	const size, suspected = 20_000, maxTracked / 4 / 4
	w := newWorld(t, func(o *Options) { o.Settings.OutlierDetection = config.OutlierObserve })
	write := func(name string) (svc *state.Service, list []*state.Slice) {
		svc = &state.Service{Name: state.Name{Namespace: "tenant", Name: name}}
		w.Store.SetService(svc, nil)
		for from := 0; from < size; from += 1000 {
			sl := &state.Slice{
				Name: state.Name{Namespace: "tenant", Name: name + string(rune('a'+from/1000))}, Service: svc.Name, Family: state.IPv4,
				Ports: []state.SlicePort{{Protocol: state.TCP, Port: 80}},
			}
			for i := range 1000 {
				sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: numbered(from+i, 80).Addr(), Ready: true, Node: "node-" + string(rune('a'+i%9))})
			}
			w.Store.SetSlice(sl, nil)
			list = append(list, sl)
		}
		return svc, list
	}
	write("first")
	began := time.Now()
	unknown := map[netip.AddrPort][]checks.Member{}
	for i := range suspected {
		unknown[numbered(i, 80)] = nil
	}
	w.walker.findMembers(unknown)
	for at, members := range unknown {
		w.checks.Suspect(at, checks.Unanswered, members, began)
	}
	for range 3 {
		svc, list := write("second")
		w.Set(svc, list, nil)
	}
	if n := len(w.checks.Suspects(state.Name{Namespace: "tenant", Name: "second"})); n != suspected {
		t.Fatalf("the second Service has %d endpoints under suspicion, want %d", n, suspected)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestManyPorts: a tenant has a Service with very many endpoints at a hundred ports each, one of which is under suspicion. His next
// plan, and the search for witnesses and for endpoints of a dead node, take about as long as with one port.
func TestManyPorts(t *testing.T) {
	cost := func(ports uint16) (best time.Duration) {
		w := newWorld(t, func(*Options) {})
		svc := &state.Service{Name: state.Name{Namespace: "tenant", Name: "web"}}
		sl := &state.Slice{Name: svc.Name, Service: svc.Name, Family: state.IPv4}
		for p := range ports {
			sl.Ports = append(sl.Ports, state.SlicePort{Protocol: state.TCP, Port: 80 + p})
		}
		for i := range 20_000 {
			sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: numbered(i, 80).Addr(), Ready: true, Node: "dead"})
			if i > 0 {
				sl.Endpoints[i].Addr = forbidden.Addr()
			}
		}
		w.Store.SetService(svc, nil)
		w.Store.SetSlice(sl, nil)
		w.suspectAt(numbered(0, 80))
		best = time.Hour
		for range 5 {
			began := time.Now()
			w.Set(svc, []*state.Slice{sl}, nil)
			w.walker.endpointsOn(map[string]bool{"dead": true})
			w.walker.witnesses(nil)
			best = min(best, time.Since(began))
		}
		if len(w.checks.Suspects(state.Name{})) != 1 {
			t.Fatal("nothing is under suspicion")
		}
		return best
	}
	if one, many := cost(1), cost(100); many > 20*one {
		t.Errorf("%s with one port, %s with a hundred", one, many)
	}
}

// TestEndOfProcess: what this process has found out until its end is saved, also answers that nobody has taken yet and changes that
// the store is written later.
func TestEndOfProcess(t *testing.T) {
	w := newWorld(t, checksOnly)
	w.Memory = w
	pool := []netip.AddrPort{at(1), at(2), at(3)}
	w.serve(shop(func(*state.Service) {}), pool, nil)
	w.settle(web)
	w.publish(time.Now())
	w.ledger.of(web).next = time.Now().Add(time.Hour) // the store is written later
	w.ledger.nextSave = time.Now().Add(time.Hour)
	w.now = w.now.Add(time.Minute)
	for _, q := range w.checks.Due(w.now) {
		if q.At != at(3) {
			w.asker.ends <- func() { w.answered(q, probe.Answer{Fault: probe.Refused}) }
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	w.asker.end(ended, func() { t.Error("the end ended this question, so it has no answer") })
	if err := w.Run(ended); err != nil {
		t.Fatal(err)
	}
	if len(w.memory) != 2 {
		t.Errorf("%v is saved, want two endpoints", w.memory)
	}
}

// TestSuspicionsOfManyNamespaces: a tenant with many namespaces has endpoints in each of them that refuse connections. All together
// cost a tenth of a core, and the endpoint of another tenant is asked twice within a second all the same.
func TestSuspicionsOfManyNamespaces(t *testing.T) {
	const cost, seconds, namespaces, each = 400 * time.Microsecond, 100, 40, 60
	w := newWorld(t, func(o *Options) { o.Cost = func(state.CheckKind) time.Duration { return cost } })
	for i := range namespaces * each {
		name := state.Name{Namespace: fmt.Sprint("evil-", i%namespaces), Name: "web"}
		w.checks.Suspect(numbered(i, 80), checks.Unanswered, []checks.Member{{Service: name}}, start)
	}
	var asked []time.Time // the endpoint of the other tenant
	late, bank, victim := start.Add(seconds*time.Second/2), state.Name{Namespace: "bank", Name: "web"}, numbered(60_000, 80)
	inquiries := 0
	for now := start; now.Before(start.Add(seconds * time.Second)); now = now.Add(checkPause) {
		if now.Equal(late) {
			w.checks.Suspect(victim, checks.Unanswered, []checks.Member{{Service: bank}}, now)
		}
		for list := w.checks.Due(now); len(list) > 0; list = w.checks.Due(now) {
			for _, q := range list {
				answer := probe.NoFault // and a client raises the suspicion again
				switch {
				case q.Doubts != nil:
					w.checks.Witnessed(checks.SomeAnswer, now)
					continue
				case q.At == victim:
					asked, answer = append(asked, now), probe.Refused
				}
				inquiries++
				w.checks.Answered(q, probe.Answer{Fault: answer}, now)
			}
		}
		for i := range namespaces * each {
			name := state.Name{Namespace: fmt.Sprint("evil-", i%namespaces), Name: "web"}
			w.checks.Suspect(numbered(i, 80), checks.Unanswered, []checks.Member{{Service: name}}, now)
		}
	}
	if spent := time.Duration(inquiries) * cost; spent > seconds*time.Second/8 || spent < seconds*time.Second/12 {
		t.Errorf("%d questions of suspicion cost %s in %d s", inquiries, spent, seconds)
	}
	if len(asked) < 2 || asked[1].Sub(late) > time.Second {
		t.Errorf("the endpoint of another tenant is suspected at %s, and asked at %s", late, asked)
	}
}

// TestEventTellsNoHost: a tenant writes addresses that he may not reach, and reads the Events. They do not say whether an address
// that does not answer has a host.
func TestEventTellsNoHost(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	for mode, other := range map[state.OutlierMode]checks.Hold{
		state.OutlierEject: checks.NeverReached, state.OutlierObserve: checks.None,
	} {
		w.Store.SetService(shop(func(s *state.Service) { s.Outliers.Mode = mode }), nil)
		says := func(h checks.Hold) string {
			return w.reporter.describe(&checks.Suspect{Member: checks.Member{Service: web}, At: at(1), Hold: h})
		}
		if alive, dead := says(checks.HostAlive), says(other); alive != dead {
			t.Errorf("the Event of an address with a host: %s\nof one without: %s", alive, dead)
		}
	}
}

// TestFullSets: a tenant keeps the kernel's sets of suspicions full. They are read less often then, and still before the kernel
// forgets what is in them.
func TestFullSets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const seconds, limit, timeout = 100, 16384, 5 * time.Second // of a set, as package program declares it
		full, reads := make([]Suspicion, 2*limit), 0
		for i := range full {
			full[i].Endpoint = numbered(i, 80)
		}
		w := newWorld(t, func(o *Options) {
			o.Suspicions = func(bool) ([]Suspicion, error) { reads++; return full, nil }
		})
		for range seconds * time.Second / noticePeriod {
			w.notice()
			<-time.After(noticePeriod)
		}
		least, most := seconds*time.Second/timeout, seconds*time.Second/16/(50*time.Millisecond)
		if n := time.Duration(reads); n < 2*least || n > most {
			t.Errorf("%d elements are read %d times in %d s, want %d to %d", len(full), reads, seconds, 2*least, most)
		}
	})
}

// TestForeignHost: a tenant has an external IP at the address of another's dead endpoint, at the port that shows whether a host lives.
// What answers there is his, so it is not asked.
func TestForeignHost(t *testing.T) {
	w := newWorld(t, func(o *Options) {
		o.Ask = func(_ context.Context, q *probe.Question) probe.Answer {
			if !q.OnlyThis {
				return probe.Answer{Fault: probe.HostAnswers}
			}
			return probe.Answer{Fault: probe.NoAnswer}
		}
	})
	for _, want := range []probe.Fault{probe.HostAnswers, probe.NoAnswer} {
		if a := w.asks(at(1)); a.Fault != want {
			t.Errorf("%s, want %s", a.Fault, want)
		}
		w.Serves(&plan.Service{Name: web, Ports: []plan.Port{{Frontends: []plan.Frontend{{Kind: plan.ExternalIP, Frontend: serviceport.Frontend{Addr: at(1).Addr(), Port: probe.HostPort}}}}}})
	}
}

// TestNotAsked: a user of the node leaves it no source port to an endpoint. Then the endpoint stays as good or bad as it is, for its
// check and after suspicions, is asked again without haste, and a line says so once a minute.
func TestNotAsked(t *testing.T) {
	var log bytes.Buffer
	w := newWorld(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	pool := []netip.AddrPort{at(1), at(2), at(3)}
	w.serve(shop(func(s *state.Service) { s.Check.Port = 9000 }), pool, nil)
	if w.wants("all are good", w.settle(web), pool...); log.Len() > 0 {
		t.Errorf("all are good, and the log says %s", &log)
	}
	checked := netip.AddrPortFrom(at(1).Addr(), 9000)
	w.answers[at(1)], w.answers[checked] = probe.OtherFault, probe.OtherFault
	w.suspectAt(at(1))
	w.wants("nobody can ask", w.settle(web), pool...)
	if n := strings.Count(log.String(), `msg="this node cannot ask endpoints; they stay as good or bad as they are, and are asked again" questions=`); n != 1 {
		t.Errorf("%d lines say so:\n%s", n, &log)
	}
	suspicions := func(now time.Time) (list []checks.Question) {
		for _, q := range w.checks.Due(now) {
			if q.Purpose == checks.Suspicion {
				list = append(list, q)
				continue
			}
			w.answered(q, w.answerOf(q.At))
		}
		return list
	}
	for range 3 {
		w.now = w.now.Add(time.Second)
		due := suspicions(w.now)
		if len(due) != 1 || due[0].At != at(1) {
			t.Fatalf("due are %v, want the question to %s", due, at(1))
		}
		w.checks.Answered(due[0], probe.Answer{Fault: probe.OtherFault}, w.now)
		if again := suspicions(w.now.Add(time.Second / 2)); len(again) > 0 {
			t.Errorf("asked again at once: %v", again)
		}
	}
	w.answers[at(1)] = probe.Refused
	w.wants("it refuses", w.settle(web), pool[1:]...)
	w.answers[at(1)] = probe.OtherFault
	w.wants("it refuses, and nobody can ask", w.settle(web), pool[1:]...)
	delete(w.answers, at(1))
	w.wants("it answers", w.settle(web), pool...)
	w.answers[checked] = probe.Refused
	w.wants("it fails its check", w.settle(web), pool[1:]...)
	w.answers[checked] = probe.OtherFault
	w.wants("it fails its check, and nobody can ask", w.settle(web), pool[1:]...)
	delete(w.answers, checked)
	w.wants("it passes its check", w.settle(web), pool...)
}
