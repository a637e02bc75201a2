package proxier

import (
	"fmt"
	"math"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/e2e/memkernel"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// A tenant can write many lists. This file grows each of them, alone and beside each other one, and counts what that costs.

// growing is a list that a tenant can write.
type growing uint8

// The lists. ClusterIPs are left out, because the API server takes two at most.
const (
	services growing = iota
	ports
	nodePorts // ports with one
	portRanges
	externalIPs
	balancerIPs
	sources
	slicesOf  // a Service
	endpoints // of each slice
	nodes     // names of nodes, one for each endpoint
	zones     // hints of each endpoint
	lists
)

func (g growing) String() string {
	return [...]string{"Services", "ports", "node ports", "port ranges", "external IPs", "load balancer IPs", "source ranges", "slices", "endpoints",
		"nodes", "zones"}[g]
}

// shape is how long the lists are.
type shape [lists]int

func (s shape) with(g growing, n int) shape {
	s[g] = n
	return s
}

// class is how the Services are served.
type class struct {
	name      string
	scheduler string
	affinity  time.Duration
	weighted  bool
	backend   config.Backend
}

func classes() []class {
	return []class{
		{name: "random"}, {name: "weights", weighted: true}, {name: "rr", scheduler: "rr"}, {name: "mh", scheduler: "mh"},
		{name: "affinity", affinity: time.Hour}, {name: "lc in IPVS", scheduler: "lc", backend: config.BackendIPVS},
		{name: "lc, hybrid", scheduler: "lc", backend: config.BackendHybrid},
	}
}

// write writes the Services of a shape. The last byte of the first endpoint depends on the round.
func (w *world) write(s shape, c *class, round int) {
	for i := range s[services] {
		svc := ofTenant(service(fmt.Sprint("s", i), fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250), 1))
		svc.Affinity, svc.Balancing.Scheduler = c.affinity, c.scheduler
		svc.Ports = nil
		number := func(p int) uint16 { return uint16(1 + p*8) }
		for p := range max(s[ports], s[nodePorts], s[portRanges]) {
			port := state.ServicePort{Name: fmt.Sprint("p", p), Protocol: state.TCP, Port: number(p)}
			if p < s[nodePorts] && i < 1 {
				port.NodePort = 30_000 + uint16(p)
			}
			if p < s[portRanges] {
				port.EndPort = number(p) + 5
			}
			svc.Ports = append(svc.Ports, port)
		}
		addr := func(network, n int) netip.Addr {
			return netip.AddrFrom4([4]byte{byte(network + i/250), byte(i), byte(n >> 8), byte(n)})
		}
		for n := range s[externalIPs] {
			svc.ExternalIPs = append(svc.ExternalIPs, addr(50, n))
		}
		for n := range s[balancerIPs] {
			svc.LoadBalancerIPs = append(svc.LoadBalancerIPs, addr(60, n))
		}
		for n := range s[sources] {
			svc.SourceRanges = append(svc.SourceRanges, netip.PrefixFrom(addr(70, n), 32-n%8).Masked())
		}
		w.store.SetService(svc, nil)
		for j := range s[slicesOf] {
			w.store.SetSlice(sliceOf(svc, j, s, c, round), nil)
		}
	}
}

// sliceOf is the j-th slice of a Service.
func sliceOf(svc *state.Service, j int, s shape, c *class, round int) *state.Slice {
	sl := slice(svc.Name.Name)
	sl.Namespace, sl.Service.Namespace, sl.Name.Name, sl.Ports = "tenant", "tenant", fmt.Sprint(svc.Name.Name, "-", j), nil
	for _, p := range svc.Ports {
		port := p.Port
		if p.EndPort > 0 {
			port = 0
		}
		sl.Ports = append(sl.Ports, state.SlicePort{Name: p.Name, Protocol: p.Protocol, Port: max(port, p.Port)})
	}
	if c.weighted {
		sl.Weight = uint16(1 + j%3)
	}
	for e := range s[endpoints] {
		n := j*s[endpoints] + e
		at := state.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 128, byte(n >> 8), byte(n)}), Ready: true, Serving: true}
		if n == 0 {
			at.Addr = netip.AddrFrom4([4]byte{10, 200, 0, byte(round)})
		}
		if s[nodes] > 0 {
			at.Node = fmt.Sprint("node", n%s[nodes])
		}
		if s[zones] > 0 {
			at.Hints = &state.Hints{}
			for z := range s[zones] {
				at.Hints.Zones = append(at.Hints.Zones, fmt.Sprint("zone", z))
			}
		}
		sl.Endpoints = append(sl.Endpoints, at)
	}
	return sl
}

// spending is what the steps cost, by what was counted.
type spending map[string]float64

const (
	memory  = "memory"
	batches = "bytes of batches"
	timed   = "time"
)

// processorTime is what this process has used: others use the processor, too.
func processorTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are right
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// spend takes a step, makes passes until nothing waits, and counts.
func (w *world) spend(t testing.TB, step string, into spending, change func()) {
	w.count(step, into, func() {
		change()
		if err := w.Once(); err != nil {
			t.Fatal(err)
		}
	})
}

// count counts what a step costs.
func (w *world) count(step string, into spending, take func()) {
	var before, after runtime.MemStats
	w.watcher.passes, w.rules.sets = nil, map[string]int{}
	runtime.ReadMemStats(&before)
	began := processorTime()
	take()
	took := processorTime() - began
	runtime.ReadMemStats(&after)
	for _, n := range w.rules.sets {
		into[step+": steps"] += float64(n)
	}
	for _, p := range w.watcher.passes {
		into[step+": elements"] += float64(p.Result.Added + p.Result.Deleted + p.Result.Operations)
		into[step+": "+batches] += float64(p.Result.Bytes)
		into[step+": steps"] += float64(1 + p.Services)
	}
	into[step+": allocations"] += float64(after.Mallocs - before.Mallocs)
	into[step+": "+memory] += float64(after.TotalAlloc - before.TotalAlloc)
	into[step+": "+timed] += float64(took)
}

// spend adds the Services of a shape, changes an endpoint, and deletes all.
func spend(t testing.TB, s shape, c *class) spending {
	rules := newFaulty(0)
	w := newWorldWith(func(o *Options) {
		do := dataplane.Options{Ruleset: rules}
		if c.backend != "" {
			balancer, err := ipvsctl.New(ipvsctl.Options{}, memkernel.NewIPVS())
			if err != nil {
				t.Fatal(err)
			}
			do.Balancer, do.Scheduling = balancer, dataplane.Scheduling{Backend: c.backend, Default: "rr"}
		}
		o.Dataplane = dataplane.New(do)
	})
	w.rules = rules
	w.store.MarkSynced()
	out := spending{}
	w.spend(t, "start", spending{}, func() {})
	w.spend(t, "add", out, func() { w.write(s, c, 1) })
	w.spend(t, "change an endpoint", out, func() {
		svc, _ := w.store.Service(state.Name{Namespace: "tenant", Name: "s0"})
		w.store.SetSlice(sliceOf(svc, 0, s, c, 2), nil)
	})
	w.spend(t, "delete", out, func() {
		for i := range s[services] {
			w.store.DeleteService(state.Name{Namespace: "tenant", Name: fmt.Sprint("s", i)})
		}
	})
	return out
}

// steepest is the largest exponent: with twice as much of one list, it costs at most 2.3 times as much.
const steepest = 1.2

// grow calls a function with what a list of n and of 10 n costs, alone and beside each other list of 10 n. Beside lists that have
// nothing to do with the class, it grows for the first class only.
func grow(t testing.TB, c *class, n int, each func(what string, spent func() (small, large spending))) {
	for g := range lists {
		of := func(s shape) func() (small, large spending) {
			return func() (small, large spending) { return spend(t, s.with(g, n), c), spend(t, s.with(g, 10*n), c) }
		}
		alone := shape{services: 1, ports: 1, slicesOf: 1, endpoints: 1}
		each(g.String(), of(alone))
		for beside := range lists {
			if beside != g && (c.name == "random" || beside == services || beside == ports || beside == endpoints) {
				each(g.String()+" with "+beside.String(), of(alone.with(beside, 10*n)))
			}
		}
	}
}

// exponent is that of what was counted; 0: the larger one is so small that most of it is the same for all lists.
func exponent(count string, small, large float64) float64 {
	least := 1000.
	switch _, what, _ := strings.Cut(count, ": "); what {
	case memory, batches:
		least = 64_000
	case timed:
		least = float64(20 * time.Millisecond)
	}
	if large < least {
		return 0
	}
	return math.Log10(large / small)
}

// TestGrowth: what a list costs is proportional to its length, whichever other list is long as well. Time is for BenchmarkGrowth.
func TestGrowth(t *testing.T) {
	for _, c := range classes() {
		if testing.Short() && c.name != "random" {
			break
		}
		t.Run(c.name, func(t *testing.T) {
			const n = 10
			grow(t, &c, n, func(what string, spent func() (small, large spending)) {
				small, large := spent()
				for count := range large {
					e := exponent(count, small[count], large[count])
					if e > steepest && !strings.HasSuffix(count, timed) {
						t.Errorf("%s, %s: %.0f for %d, %.0f for %d: exponent %.2f", what, count, small[count], n, large[count], 10*n, e)
					}
				}
			})
		})
	}
}

// steps are what BenchmarkGrowth prints.
var steps = []string{"add", "change an endpoint", "delete"}

// least keeps the smaller one of two counts.
func (s spending) least(of spending) {
	for what, n := range of {
		s[what] = min(s[what], n)
	}
}

// tooFast reports whether the time or the memory of a step grows faster than it may.
func tooFast(step string, small, large spending) bool {
	return slices.ContainsFunc([]string{step + ": " + timed, step + ": " + memory}, func(count string) bool {
		return exponent(count, small[count], large[count]) > steepest
	})
}

// BenchmarkGrowth prints how the time and the memory grow, and what grows too fast. The collector runs between the steps only: small ones
// end before it would begin, and large ones do not.
func BenchmarkGrowth(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, c := range classes() {
		b.Run(c.name, func(b *testing.B) {
			const n = 20
			for b.Loop() {
				var table strings.Builder
				fmt.Fprintf(&table, "\n| %s: list, from %d to %d | step | processor time | exponent | memory | exponent | |\n|---|---|---|---|---|---|---|\n", c.name, n, 10*n)
				grow(b, &c, n, func(what string, spent func() (small, large spending)) {
					runtime.GC()
					small, large := spent()
					for range 4 { // what others do on the machine only adds to a time
						if runtime.GC(); !slices.ContainsFunc(steps, func(step string) bool { return tooFast(step, small, large) }) {
							break
						}
						again, larger := spent()
						small.least(again)
						large.least(larger)
					}
					for _, step := range steps {
						at, of := step+": "+timed, step+": "+memory
						remark := ""
						if tooFast(step, small, large) {
							remark = "too fast"
						}
						fmt.Fprintf(&table, "| %s | %s | %s | %.2f | %.0f kB | %.2f | %s |\n", what, step,
							time.Duration(large[at]).Round(10*time.Microsecond), exponent(at, small[at], large[at]),
							large[of]/1000, exponent(of, small[of], large[of]), remark)
					}
				})
				fmt.Println(table.String())
			}
		})
	}
}
