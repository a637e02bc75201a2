//go:build ipvs

package ipvs

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// BenchmarkEndpointChange replaces one endpoint of one Service with ten, while few or many others exist, all served by
// IPVS. It measures the whole way: from the store through the loop and both engines into the kernel, in the namespace
// of a node. The cost must not depend on the number of Services. Compare the medians, because an emulated CPU is
// sometimes interrupted for long.
//
//	make bench-ipvs
func BenchmarkEndpointChange(b *testing.B) {
	for _, n := range []int{100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmarkEndpointChange(b, n) })
	}
}

func benchmarkEndpointChange(b *testing.B, n int) {
	store, passes := startLoop(b)
	slicesOf := make([]*state.Slice, n)
	for i := range n {
		svc, slice := benchService(i)
		store.SetService(svc, nil)
		store.SetSlice(slice, nil)
		slicesOf[i] = slice
	}
	store.SetHostAddresses(nil)
	store.SetServiceCIDRs(nil)
	began := time.Now()
	store.MarkSynced()
	first := <-passes
	built := time.Since(began)
	if first.Result.Err != nil || first.Result.Operations < 12*n { // a server, an address, ten real servers
		b.Fatalf("first pass: %d operations, %v", first.Result.Operations, first.Result.Err)
	}
	var each []time.Duration
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i * 7919 % n
		slice := *slicesOf[at]
		slice.Endpoints = slices.Clone(slice.Endpoints)
		slice.Endpoints[i%10].Addr = benchAddr(172, n*10+i)
		slicesOf[at] = &slice
		began := time.Now()
		store.SetSlice(&slice, nil)
		r := <-passes
		each = append(each, time.Since(began))
		if r.Result.Err != nil || r.Result.Operations != 2 {
			b.Fatalf("%d operations, %v", r.Result.Operations, r.Result.Err)
		}
	}
	slices.Sort(each)
	b.ReportMetric(float64(each[len(each)/2].Microseconds()), "µs-median")
	b.ReportMetric(float64(built.Milliseconds()), "ms-to-build")
}

// startLoop starts the loop with both engines in a fresh namespace.
func startLoop(b *testing.B) (*state.Store, <-chan report.Pass) {
	b.Helper()
	ns, err := lab.NewNamespace("bench")
	must(b, err)
	b.Cleanup(func() { must(b, ns.Close()) })
	engine, err := nft.Open(nft.Options{NetNS: ns.Fd()})
	must(b, err)
	flows, err := conntrack.Open(conntrack.Options{NetNS: ns.Fd()})
	must(b, err)
	balancer, err := ipvsctl.Open(ipvsctl.Options{NetNS: ns.Fd(), GracefulPeriod: config.Default().IPVS.GracefulPeriod})
	must(b, err)
	settings := config.Default()
	settings.NodeName, settings.MinSyncPeriod, settings.ClusterCIDRs = lab.NodeName, 0, []string{"172.0.0.0/8"}
	passes := make(passed, 1)
	store := state.NewStore()
	loop := proxier.New(proxier.Options{
		Settings: &settings, Store: store, Flows: flows, Observer: passes,
		Dataplane: dataplane.New(dataplane.Options{
			Ruleset: engine, Balancer: balancer,
			Scheduling: dataplane.Scheduling{Backend: config.BackendHybrid, Default: "rr", Available: ipvsctl.Schedulers()},
		}),
		Primary: func() ([]netip.Addr, error) { return []netip.Addr{netip.MustParseAddr("192.0.2.1")}, nil },
		Log:     slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- loop.Run(ctx) }()
	b.Cleanup(func() {
		stop()
		must(b, <-ended)
		balancer.Close()
		must(b, engine.Close())
		must(b, flows.Close())
	})
	return store, passes
}

func must(b testing.TB, err error) {
	b.Helper()
	lab.Must(b, err)
}

// passed delivers the reports of passes that planned a Service.
type passed chan report.Pass

func (p passed) PassDone(r report.Pass) {
	if r.Services > 0 {
		p <- r
	}
}
func (p passed) Pending(time.Time)               {}
func (p passed) FlowsCleaned([]conntrack.Result) {}
func (p passed) AsWanted(time.Time)              {}
func (p passed) Repaired(report.Repair)          {}
func (p passed) Problems(report.Problems)        {}

func benchAddr(first byte, i int) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], uint32(first)<<24|uint32(i+1))
	return netip.AddrFrom4(a)
}

func benchService(i int) (*state.Service, *state.Slice) {
	name := state.Name{Namespace: "default", Name: fmt.Sprintf("service-%06d", i)}
	svc := &state.Service{
		Name: name, Created: time.Unix(1_700_000_000+int64(i), 0), ClusterIPs: []netip.Addr{benchAddr(10, i)},
		Ports: []state.ServicePort{{Name: "http", Protocol: state.TCP, Port: 80}}, Balancing: state.Balancing{Scheduler: "lc"},
	}
	slice := &state.Slice{
		Name: name, Service: name, Family: state.IPv4, Weight: state.DefaultWeight,
		Ports: []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}},
	}
	for j := range 10 {
		slice.Endpoints = append(slice.Endpoints, state.Endpoint{Addr: benchAddr(172, i*10+j), Ready: true, Serving: true, Node: "elsewhere"})
	}
	return svc, slice
}
