//go:build !nokernel

package proxier

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/netns"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// victim is the Service of BenchmarkUnrelatedChange that is not part of the storm.
var victim = state.Name{Namespace: "shop", Name: "victim"}

// stopwatch tells which endpoint of the victim the kernel has.
type stopwatch struct {
	*dataplane.Dataplane
	endpoint netip.AddrPort
	applied  chan netip.AddrPort
}

func (s *stopwatch) Set(p *plan.Service) []state.Problem {
	if p.Name == victim {
		s.endpoint = p.Ports[0].Cluster[0].Addr
	}
	return s.Dataplane.Set(p)
}

func (s *stopwatch) Apply() dataplane.Result {
	r := s.Dataplane.Apply()
	if r.Applied() {
		select {
		case <-s.applied:
		default:
		}
		s.applied <- s.endpoint
	}
	return r
}

// BenchmarkUnrelatedChange reports how long a change of one endpoint takes to reach the kernel while a tenant changes
// all his objects again and again.
func BenchmarkUnrelatedChange(b *testing.B) {
	for _, storm := range []struct {
		name   string
		change func(s *state.Store, round int)
	}{
		{"calm", func(*state.Store, int) {}},
		{"60 Services of 4,000 frontends", func(s *state.Store, round int) {
			for i := range 60 {
				s.SetService(wideService(i, round), nil)
			}
		}},
		{"10,000 Services", func(s *state.Store, round int) {
			for i := range 10_000 {
				name := fmt.Sprint("s", i)
				if round == 0 {
					s.SetService(ofTenant(service(name, fmt.Sprintf("10.96.%d.%d", i/250, i%250+1), 1)), nil)
				}
				sl := slice(name, fmt.Sprintf("10.1.%d.%d", i/250, i%250+1), fmt.Sprintf("10.2.0.%d", round%250+1))
				sl.Namespace, sl.Service.Namespace = "tenant", "tenant"
				s.SetSlice(sl, nil)
			}
		}},
		{"a range at 4,000 addresses", func(s *state.Store, round int) {
			if round == 0 {
				svc := ofTenant(service("rtp", "10.96.0.1", 1))
				svc.Ports[0].Port, svc.Ports[0].EndPort = 1, 65534
				for i := range 4000 {
					svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{203, 0, byte(i >> 8), byte(i)}))
				}
				s.SetService(svc, nil)
			}
			sl := slice("rtp", "10.3.0.1")
			sl.Namespace, sl.Service.Namespace, sl.Ports[0].Port = "tenant", "tenant", 1
			if sl.Endpoints = sl.Endpoints[:round%2]; round > 0 {
				s.SetSlice(sl, nil)
			}
		}},
	} {
		b.Run(storm.name, func(b *testing.B) { measureUnrelated(b, storm.change) })
	}
}

// wideService has 100 ports and 40 addresses. One of the ports has another name in each round.
func wideService(i, round int) *state.Service {
	svc := ofTenant(service(fmt.Sprint("wide", i), fmt.Sprintf("10.97.0.%d", i+1), 1))
	for j := range 39 {
		svc.ExternalIPs = append(svc.ExternalIPs, netip.AddrFrom4([4]byte{203, 0, byte(i), byte(j + 1)}))
	}
	for j := range 99 {
		svc.Ports = append(svc.Ports, state.ServicePort{Name: fmt.Sprint("p", j), Protocol: state.TCP, Port: uint16(1000 + j)})
	}
	svc.Ports[99].Name = fmt.Sprint("round", round%2)
	return svc
}

func measureUnrelated(b *testing.B, change func(s *state.Store, round int)) {
	w, watch := startStorm(b)
	vary := func(i int) netip.AddrPort {
		sl := slice("victim", fmt.Sprintf("10.3.%d.%d", i/250%250, i%250+1))
		sl.Namespace, sl.Service = victim.Namespace, victim
		w.SetSlice(sl, nil)
		return netip.AddrPortFrom(sl.Endpoints[0].Addr, 8080)
	}
	svc := service("victim", "10.98.0.1", 1)
	svc.Namespace = victim.Namespace
	w.SetService(svc, nil)
	first := vary(0)
	change(w, 0)
	w.MarkSynced()
	waitFor(watch, first)

	ended, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for round := 1; ; round++ {
			select {
			case <-ended:
				return
			case <-time.After(200 * time.Millisecond):
				change(w, round)
			}
		}
	}()
	var took []time.Duration
	for b.Loop() {
		time.Sleep(time.Duration(7+len(took)%13) * time.Millisecond)
		start := time.Now()
		waitFor(watch, vary(len(took)+1))
		took = append(took, time.Since(start))
	}
	close(ended)
	<-stopped
	slices.Sort(took)
	for _, percent := range []int{50, 99} {
		b.ReportMetric(float64(took[(len(took)-1)*percent/100])/1e6, fmt.Sprintf("p%d-ms", percent))
	}
	b.ReportMetric(0, "ns/op")
}

func waitFor(watch *stopwatch, endpoint netip.AddrPort) {
	for endpoint != <-watch.applied {
	}
}

// startStorm starts a loop over the real nft engine.
func startStorm(b *testing.B) (*state.Store, *stopwatch) {
	ns := netns.New(b)
	engine, err := nft.Open(nft.Options{NetNS: ns.Fd()})
	if err != nil {
		b.Fatal(err)
	}
	store, settings := state.NewStore(), config.Default()
	watch := &stopwatch{Dataplane: dataplane.New(dataplane.Options{Ruleset: engine}), applied: make(chan netip.AddrPort, 1)}
	loop := New(Options{
		Settings: &settings, Store: store, Dataplane: watch, Flows: &flowCounter{}, Observer: &watcher{},
		Primary: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.168.7.1")}, nil },
		Log:     slog.New(slog.DiscardHandler),
	})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- loop.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			b.Error(err)
		}
		if err := engine.Close(); err != nil {
			b.Error(err)
		}
	})
	return store, watch
}
