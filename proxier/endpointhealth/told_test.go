package endpointhealth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestFailingReads: that the kernel cannot be read is logged once, and so is that it works again.
func TestFailingReads(t *testing.T) {
	var log bytes.Buffer
	var fault error
	w := newWorld(t, func(o *Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, nil))
		o.Suspicions = func(bool) ([]Suspicion, error) { return nil, fault }
	})
	for _, fault = range []error{nil, errors.New("injected"), errors.New("injected"), nil, nil} {
		w.kernel.read()
	}
	if text := log.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "injected") || !strings.Contains(text, "works again") {
		t.Errorf("log:\n%s", text)
	}
}

// TestWhyItGetsConnections: an endpoint that failed gets connections all the same. A reason of its own comes before one of its Service.
func TestWhyItGetsConnections(t *testing.T) {
	for want, tt := range map[checks.Hold]struct {
		mode   state.OutlierMode
		answer probe.Fault
		fail   int // endpoints, of three
	}{
		checks.Observed:  {state.OutlierObserve, probe.NoAnswer, 1},
		checks.HostAlive: {state.OutlierObserve, probe.HostAnswers, 1},
		checks.Mass:      {state.OutlierEject, probe.NoAnswer, 3},
	} {
		w, pool := newWorld(t, func(*Options) {}), []netip.AddrPort{at(1), at(2), at(3)}
		w.serve(&state.Service{Name: web, Outliers: state.OutlierDetection{Mode: tt.mode}}, pool, nil)
		w.settle(web)
		for _, at := range pool[:tt.fail] {
			w.answers[at] = tt.answer
		}
		w.suspectAt(pool[:tt.fail]...)
		w.wants(string(want), w.settle(web), pool...)
		if list := w.Statuses(web); len(list) != tt.fail || list[0].Hold != want {
			t.Errorf("%+v, want the hold %q", list, want)
		}
	}
}

// TestMovesHere: an endpoint on another node that never answered may be behind a network policy. On this node, its silence counts.
func TestMovesHere(t *testing.T) {
	w := newWorld(t, checksOnly)
	w.answers[at(1)] = probe.NoAnswer
	w.serve(shop(func(s *state.Service) { s.AllDown = state.RefuseAll }), []netip.AddrPort{at(1)}, nil)
	w.wants("on another node", w.settle(web), at(1))
	w.publish(w.now.Add(time.Minute)) // nothing waits
	_, list := w.Store.Service(web)
	sl := *list[0]
	sl.Endpoints = slices.Clone(sl.Endpoints)
	sl.Endpoints[0].Node = "this"
	w.Store.SetSlice(&sl, nil)
	w.plan(web)
	w.publish(w.now.Add(time.Hour))
	w.wants("on this node", w.plan(web))
}

// TestWrittenAgainWithoutCheck: a Service is deleted, and written again without a check while the old failure is on its way into the
// store. The failure does not stay there.
func TestWrittenAgainWithoutCheck(t *testing.T) {
	w := newWorld(t, checksOnly)
	w.answers[at(1)] = probe.Refused
	w.serve(shop(func(*state.Service) {}), []netip.AddrPort{at(1), at(2)}, nil)
	w.wants("one fails", w.settle(web), at(2))
	w.Store.DeleteService(web)
	w.Store.SetService(&state.Service{Name: web}, nil)
	w.ledger.touch(web)
	w.publish(w.now.Add(time.Hour))
	if len(w.Store.Health(web)) != 1 {
		t.Fatal("the store does not know the failure")
	}
	w.Remove(web)
	w.publish(w.now.Add(2 * time.Hour))
	if h := w.Store.Health(web); len(h) != 0 {
		t.Errorf("nobody asks, and %+v stays", h)
	}
}

// TestWaitsOnce: a Service whose health changes again and again waits once.
func TestWaitsOnce(t *testing.T) {
	w := newWorld(t, checksOnly)
	for range 3 {
		w.ledger.touch(web)
	}
	if n := len(w.ledger.queue); n != 1 {
		t.Errorf("it waits %d times", n)
	}
}

// TestSecondQuestion: when an endpoint under suspicion does not answer, the second question comes at once.
func TestSecondQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var noticed []Suspicion
		var asked []time.Time
		w := newWorld(t, func(o *Options) {
			o.Suspicions = func(bool) ([]Suspicion, error) { mu.Lock(); defer mu.Unlock(); return noticed, nil }
			o.Ask = func(_ context.Context, q *probe.Question) probe.Answer {
				mu.Lock()
				defer mu.Unlock()
				if len(noticed) == 0 || q.At != at(1) {
					return probe.Answer{Connected: true}
				}
				asked = append(asked, time.Now())
				return probe.Answer{Fault: probe.NoAnswer}
			}
		})
		w.serve(&state.Service{Name: web}, []netip.AddrPort{at(1), at(2)}, nil)
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		<-time.After(time.Second)
		mu.Lock()
		noticed = []Suspicion{{Endpoint: at(1), Packets: 1}}
		mu.Unlock()
		<-time.After(time.Second)
		end()
		if err := <-done; err != nil {
			t.Error(err)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(asked) < 2 || !asked[1].Equal(asked[0]) {
			t.Errorf("asked at %v", asked)
		}
	})
}

// TestManyServicesOfOneEndpoint: a tenant has an endpoint in very many Services. No more of them are linked to it than can be under
// suspicion.
func TestManyServicesOfOneEndpoint(t *testing.T) {
	w := newWorld(t, func(*Options) {})
	for i := range maxTracked/4 + 100 {
		name := state.Name{Namespace: "tenant", Name: fmt.Sprint(i)}
		w.Store.SetService(&state.Service{Name: name}, nil)
		w.Store.SetSlice(&state.Slice{
			Name: name, Service: name, Family: state.IPv4, Ports: []state.SlicePort{{Protocol: state.TCP, Port: 8080}},
			Endpoints: []state.Endpoint{{Addr: at(1).Addr(), Ready: true}},
		}, nil)
	}
	found := map[netip.AddrPort][]checks.Member{at(1): nil}
	w.walker.findMembers(found)
	if n := len(found[at(1)]); n != maxTracked/4 {
		t.Errorf("%d Services are linked, want %d", n, maxTracked/4)
	}
}

// TestLingers: the first port of a range is not asked, nor is any until the kernel has surely lost it, whenever others are forgotten.
func TestLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newWorld(t, func(*Options) {}).permit
		to, other := netip.MustParseAddrPort("198.51.100.7:80"), netip.MustParseAddrPort("198.51.100.8:80")
		p.serve(web, []span{{to, 90}})
		if !p.refuses(to) {
			t.Error("the first port of a range is asked")
		}
		p.serve(state.Name{Namespace: "shop", Name: "other"}, []span{{other, 80}})
		p.serve(state.Name{Namespace: "shop", Name: "other"}, nil) // forgotten after lingering
		<-time.After(900 * time.Millisecond)
		p.serve(web, nil)
		if <-time.After(lingering - 800*time.Millisecond); !p.refuses(to) {
			t.Error("it is asked, and the kernel may still have it")
		}
	})
}
