package endpointhealth

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
	"github.com/verdict-proxy/verdict/proxier/threadtime"
)

// TestLook: what the kernel noticed comes under suspicion. With the detection off, the kernel is not asked.
func TestLook(t *testing.T) {
	asked := 0
	notice := func(o *Options) {
		o.Suspicions = func(bool) ([]Suspicion, error) {
			asked++
			return []Suspicion{{Endpoint: at(1), Refusing: true}}, nil
		}
	}
	w := newWorld(t, notice)
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), at(2)}, nil)
	w.notice()
	if list := w.checks.Suspects(web); len(list) != 0 { // refusals count only for those who want it
		t.Errorf("under suspicion: %+v", list)
	}
	w.serve(&state.Service{Name: web, Outliers: state.OutlierDetection{Refusals: true}}, []netip.AddrPort{at(1), at(2)}, nil)
	w.kernel.seen = nil
	w.notice()
	if list := w.checks.Suspects(web); len(list) != 1 || list[0].At != at(1) || list[0].Reason != checks.Refusing || asked != 2 {
		t.Errorf("under suspicion: %+v; asked %d times", list, asked)
	}
	w = newWorld(t, func(o *Options) { notice(o); checksOnly(o) })
	w.notice()
	if asked != 2 {
		t.Error("asked the kernel, and nobody wants to know")
	}
}

// TestQuietReport: while nothing happens, a report does not list the suspicions.
func TestQuietReport(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), at(2)}, nil)
	w.suspectAt(at(1))
	w.tell()
	w.tell()
	svc, list := w.Store.Service(web)
	w.Set(svc, list, []plan.Choice{{Protocol: state.TCP, At: at(1), Use: plan.Ejected}, {Protocol: state.TCP, At: at(2)}})
	w.tell()
	if r := w.reports; len(r) != 3 || len(r[0].Notes) != 1 || len(r[0].Statuses) != 1 || r[1].Statuses != nil || len(r[2].Statuses) != 1 {
		t.Errorf("reports: %+v", r)
	}
}

// TestWitness: what shows that this node has its network, or has lost it. No namespace decides that, unless it is the only one.
func TestWitness(t *testing.T) {
	faults := map[netip.AddrPort]probe.Fault{
		at(1): probe.NoAnswer, at(2): probe.NoRoute, at(3): probe.Refused, at(4): probe.HostAnswers, at(5): probe.NoFault, at(6): probe.OtherFault,
	}
	w := newWorld(t, func(o *Options) {
		o.Ask = func(_ context.Context, q *probe.Question) probe.Answer { return probe.Answer{Fault: faults[q.At]} }
	})
	of := func(namespace string, list ...byte) (of []witness) {
		for _, i := range list {
			of = append(of, witness{at: at(i), namespace: namespace, alone: namespace == "" || namespace == "alone"})
		}
		return of
	}
	for name, tt := range map[string]struct {
		of   [][]witness
		want checks.Witnesses
	}{
		"nobody":                                     {nil, checks.NoWitness},
		"nobody could be asked":                      {[][]witness{of("", 6), of("alone", 6), of("a", 6)}, checks.NoWitness},
		"one namespace is silent":                    {[][]witness{of("a", 1, 2)}, checks.NoWitness},
		"the only namespace is silent":               {[][]witness{of("alone", 1, 2)}, checks.AllSilent},
		"two namespaces are silent":                  {[][]witness{of("a", 1), of("b", 2)}, checks.AllSilent},
		"one of them could not be asked":             {[][]witness{of("a", 1), of("b", 6)}, checks.NoWitness},
		"the API server is silent":                   {[][]witness{of("", 1)}, checks.AllSilent},
		"only the API server answers":                {[][]witness{of("a", 1), of("b", 1), of("", 2, 5), of("c", 1)}, checks.SomeAnswer},
		"it could not be asked":                      {[][]witness{of("a", 1), of("", 6)}, checks.NoWitness},
		"an endpoint of a namespace answers":         {[][]witness{of("a", 1, 2, 3)}, checks.SomeAnswer},
		"one of two namespaces answers":              {[][]witness{of("a", 1, 2), of("b", 4)}, checks.SomeAnswer},
		"one of three namespaces answers":            {[][]witness{of("a", 1), of("b", 5), of("c", 2)}, checks.AllSilent},
		"one of three, two of which can be asked":    {[][]witness{of("a", 6), of("b", 5), of("c", 2)}, checks.SomeAnswer},
		"two of four, and the API server is silent":  {[][]witness{of("", 1), of("a", 1), of("b", 5), of("c", 2), of("d", 3)}, checks.SomeAnswer},
		"one of two, and the API server is silent":   {[][]witness{of("", 1), of("a", 1), of("b", 5)}, checks.AllSilent},
		"one, and the API server is silent":          {[][]witness{of("a", 5), of("", 1)}, checks.AllSilent},
		"one of three, and the API server is silent": {[][]witness{of("", 1), of("a", 1), of("b", 5, 5), of("c", 2)}, checks.AllSilent},
	} {
		got := checks.Witnesses(99)
		go w.asker.witness(t.Context(), slices.Concat(tt.of...), func(is checks.Witnesses) { got = is })
		if (<-w.asker.ends)(); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}

// TestSiblingsOnce: the other endpoints of a node come under suspicion once, not with each look, and only those of Services that eject.
func TestSiblingsOnce(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), at(2)}, nil)
	observes := &state.Service{Name: state.Name{Namespace: "shop", Name: "observes"}, Outliers: state.OutlierDetection{Mode: state.OutlierObserve}}
	w.serve(observes, []netip.AddrPort{at(3)}, nil)
	_, there := w.Store.Service(observes.Name)
	there[0].Endpoints[0].Node = "node-10.0.1.1"
	w.walker.wantSiblings("", false, start)
	if found := w.walker.findSiblings(start); found != nil {
		t.Errorf("nobody is wanted, and %v are found", found)
	}
	w.walker.wantSiblings("node-10.0.1.1", false, start)
	if found := w.walker.findSiblings(start); len(found) != 1 || len(found[at(1)]) != 1 {
		t.Errorf("found %v, want the endpoint of this node and its Service", found)
	}
	w.walker.budget = threadtime.Bucket{}
	if found := w.walker.findSiblings(start.Add(time.Hour)); found != nil {
		t.Errorf("found again: %v", found)
	}
	for later, want := range []int{0, 1} {
		now := start.Add(siblingPeriod).Add(time.Duration(later-1) * time.Millisecond)
		w.walker.wantSiblings("node-10.0.1.1", false, now)
		if found := w.walker.findSiblings(now); len(found) != want {
			t.Errorf("in the next period: %t; found %v", want > 0, found)
		}
	}
}

// TestNobodyWatches: of a Service that wants nothing of this, nothing is remembered.
func TestNobodyWatches(t *testing.T) {
	w := newWorld(t, checksOnly)
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1)}, nil)
	svc, list := w.Store.Service(web)
	if w.Set(svc, list, nil); len(w.ledger.services) != 0 || len(w.ledger.queue) != 0 {
		t.Errorf("%d Services are remembered, %d wait", len(w.ledger.services), len(w.ledger.queue))
	}
}

// TestMembersWord: the detector hears what the slice of an endpoint says.
func TestMembersWord(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	e := state.Endpoint{Addr: at(1).Addr(), Node: "other", Serving: true, Terminating: true}
	sl := &state.Slice{Name: web, Service: web, Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}}, Endpoints: []state.Endpoint{e}}
	all := func(netip.Addr) bool { return true }
	word := func() checks.Word {
		return w.walker.members(&state.Service{Name: web}, []*state.Slice{sl}, all)[at(1)].Word
	}
	if got, want := word(), (checks.Word{Node: "other", Serving: true, Terminating: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	sl.Endpoints[0] = state.Endpoint{Addr: at(1).Addr(), Node: "other", Ready: true}
	for _, node := range []string{"", "this", "other", "another"} {
		sl.Endpoints = append(sl.Endpoints, state.Endpoint{Addr: at(2).Addr(), Node: node})
	}
	if n := w.walker.members(&state.Service{Name: web}, []*state.Slice{sl}, all)[at(1)].Nodes; n != 2 {
		t.Errorf("endpoints on %d nodes besides this one, want 2", n)
	}
	if got, want := word(), (checks.Word{Node: "other", Ready: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestMoves: which endpoints a plan ejects that the one before did not, and which return. The protocols do not mix.
func TestMoves(t *testing.T) {
	w := newWorld(t, checksOnly)
	for i, tt := range []struct {
		tcp, udp  plan.Use
		out, back int
	}{
		{plan.InUse, plan.InUse, 0, 0},
		{plan.InUse, plan.Ejected, 1, 0},
		{plan.Ejected, plan.Ejected, 1, 0},
		{plan.Ejected, plan.KeptLast, 0, 1},
		{plan.Ejected, plan.InUse, 0, 0},
		{plan.KeptShare, plan.InUse, 0, 1},
	} {
		w.Set(shop(func(*state.Service) {}), nil, []plan.Choice{
			{Protocol: state.TCP, At: at(1), Use: tt.tcp}, {Protocol: state.UDP, At: at(1), Use: tt.udp}, {Protocol: state.TCP, At: at(2)},
		})
		w.tell()
		all := Move{Service: web}
		for _, m := range w.reports[i].Moves {
			all.Service, all.Down, all.Out, all.Back = m.Service, m.Down, append(all.Out, m.Out...), append(all.Back, m.Back...)
		}
		want := Move{Service: web, Out: slices.Repeat([]netip.AddrPort{at(1)}, tt.out), Back: slices.Repeat([]netip.AddrPort{at(1)}, tt.back)}
		if all.Service != web || all.Down != (tt.udp == plan.KeptLast) || !slices.Equal(all.Out, want.Out) || !slices.Equal(all.Back, want.Back) {
			t.Errorf("%d: %+v, want %+v", i, all, want)
		}
	}
}

// TestStatusOrder: rows are sorted by address, then by protocol, then by state.
func TestStatusOrder(t *testing.T) {
	row := func(i byte, p state.Protocol, s State) Status {
		return Status{Suspect: checks.Suspect{At: at(i)}, Protocol: p, State: s}
	}
	want := []Status{
		row(1, state.TCP, StateSuspected), row(1, state.TCP, StateFailing), row(1, state.UDP, StateFailing), row(2, state.TCP, StateSuspected),
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	if slices.SortFunc(got, Status.Compare); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// TestRun: clients get no answer from an endpoint. It is asked, left out after two bad answers, and good again after two good ones.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var noticed []Suspicion
		answer := probe.Answer{Connected: true}
		w := newWorld(t, func(o *Options) {
			o.Suspicions = func(bool) ([]Suspicion, error) { mu.Lock(); defer mu.Unlock(); return noticed, nil }
			o.Ask = func(_ context.Context, q *probe.Question) probe.Answer {
				mu.Lock()
				defer mu.Unlock()
				if q.At == at(1) {
					return answer
				}
				return probe.Answer{Connected: true}
			}
		})
		w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), at(2), near(1)}, nil)
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		failed := func(what string, within time.Duration, want int) {
			t.Helper()
			<-time.After(within)
			if h := w.Store.Health(web); len(h) != want || want > 0 && h[0].At != at(1) {
				t.Errorf("%s: failed are %v, want %d", what, h, want)
			}
		}
		failed("all are good", time.Second, 0)
		mu.Lock()
		noticed, answer = []Suspicion{{Endpoint: at(1), Packets: 1}}, probe.Answer{Fault: probe.NoAnswer}
		mu.Unlock()
		failed("one does not answer", time.Second, 1)
		mu.Lock()
		answer = probe.Answer{Connected: true}
		mu.Unlock()
		failed("it answers again", 10*time.Second, 0)
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
		answers := 0
		for _, r := range w.reports {
			answers += r.Answers[Answer{Fault: probe.NoAnswer}] + r.Answers[Answer{}]
		}
		if answers < 4 {
			t.Errorf("metrics count %d answers, want at least 4", answers)
		}
	})
}

// TestLooksOfATenant: first looks at the endpoints of one namespace take no more than half of the room, and others find some.
func TestLooksOfATenant(t *testing.T) {
	l, targets := newLooks(t), make([]probe.Target, maxLooks/4)
	for i := range 4 {
		for j := range targets {
			targets[j] = probe.Target{Protocol: state.TCP, At: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(j >> 16), byte(j >> 8), byte(j)}), uint16(80+i))}
		}
		l.look(state.Name{Namespace: "tenant", Name: fmt.Sprint(i)}, targets, nil, start)
	}
	if n := l.looks(); n != 1<<16 {
		t.Errorf("%d looks of a tenant, want %d", n, 1<<16)
	}
	if list := l.look(web, targets[:1000], nil, start); slices.Contains(list, nil) {
		t.Error("endpoints of another namespace find no room")
	}
}
