package endpointhealth

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/schedule"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/suspicion"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestLook: what the kernel noticed comes under suspicion. With the detection off, the kernel is not asked.
func TestLook(t *testing.T) {
	asked := 0
	notice := func(o *Options) {
		o.Suspicions = func(bool) ([]Suspicion, error) { asked++; return []Suspicion{{Endpoint: at(1), Refusing: true}}, nil }
	}
	w := newWorld(t, notice)
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), at(2)}, nil)
	w.look(t.Context())
	if list := w.suspects.Records(web); len(list) != 0 { // refusals count only for those who want it
		t.Errorf("under suspicion: %+v", list)
	}
	w.serve(&state.Service{Name: web, Outliers: state.OutlierDetection{Refusals: true}}, []netip.AddrPort{at(1), at(2)}, nil)
	w.kernel.seen = nil
	w.look(t.Context())
	if list := w.suspects.Records(web); len(list) != 1 || list[0].At != at(1) || list[0].Reason != suspicion.Refusing || asked != 2 {
		t.Errorf("under suspicion: %+v; asked %d times", list, asked)
	}
	w = newWorld(t, func(o *Options) { notice(o); checksOnly(o) })
	w.look(t.Context())
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
	if r := w.reports; len(r) != 2 || len(r[0].Notes) != 1 || len(r[0].Statuses) != 1 || r[1].Statuses != nil {
		t.Errorf("reports: %+v", r)
	}
}

// TestWitness: one witness that can be reached shows that this node has its network, whatever the others say.
func TestWitness(t *testing.T) {
	faults := map[netip.AddrPort]probe.Fault{
		at(1): probe.NoAnswer, at(2): probe.NoRoute, at(3): probe.Refused, at(4): probe.HostAnswers, at(5): probe.NoFault,
	}
	w := newWorld(t, func(o *Options) {
		o.Ask = func(_ context.Context, q *probe.Question) probe.Answer { return probe.Answer{Fault: faults[q.At]} }
	})
	for _, tt := range []struct {
		of   []netip.AddrPort
		want suspicion.Witnesses
	}{
		{nil, suspicion.NoWitness},
		{[]netip.AddrPort{at(1), at(2)}, suspicion.AllSilent},
		{[]netip.AddrPort{at(1), at(2), at(3)}, suspicion.SomeAnswer},
		{[]netip.AddrPort{at(4), at(1)}, suspicion.SomeAnswer},
		{[]netip.AddrPort{at(5)}, suspicion.SomeAnswer},
	} {
		got := suspicion.Witnesses(99)
		go w.asker.witness(t.Context(), tt.of, func(is suspicion.Witnesses) { got = is })
		if (<-w.asker.ends)(); got != tt.want {
			t.Errorf("witnesses %v: %d, want %d", tt.of, got, tt.want)
		}
	}
}

// TestSiblingsOnce: the other endpoints of a node come under suspicion once, not with each look.
func TestSiblingsOnce(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), at(2)}, nil)
	w.walker.wantSiblings("", false, start)
	if found := w.walker.findSiblings(start); found != nil {
		t.Errorf("nobody is wanted, and %v are found", found)
	}
	w.walker.wantSiblings("node-10.0.1.1", false, start)
	if found := w.walker.findSiblings(start); len(found) != 1 || len(found[at(1)]) != 1 {
		t.Errorf("found %v, want the endpoint of this node and its Service", found)
	}
	w.walker.budget = schedule.Bucket{}
	if found := w.walker.findSiblings(start.Add(time.Hour)); found != nil {
		t.Errorf("found again: %v", found)
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
	word := func() suspicion.Word {
		return w.walker.members(&state.Service{Name: web}, []*state.Slice{sl}, all)[at(1)].Word
	}
	if got, want := word(), (suspicion.Word{Node: "other", Serving: true, Terminating: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	sl.Endpoints[0] = state.Endpoint{Addr: at(1).Addr(), Node: "other", Ready: true}
	if got, want := word(), (suspicion.Word{Node: "other", Ready: true}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
