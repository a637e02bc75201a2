package claims

import (
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

const (
	manyServices = 50_000
	perService   = 4 // two frontends in two families
)

// manyPlan returns the plan of one of many Services without common frontends.
func manyPlan(i int) *plan.Service {
	p := &plan.Service{Name: state.Name{Namespace: "ns", Name: fmt.Sprintf("service-%06d", i)}, Ports: make([]plan.Port, 2)}
	for f := range p.Ports {
		port := &p.Ports[f]
		b := [16]byte{0: 0xfd, 12: 10, 13: byte(i >> 16), 14: byte(i >> 8), 15: byte(i)}
		port.Protocol, port.Family = state.TCP, state.IPv6
		addr := netip.AddrFrom16(b)
		if f == 0 {
			port.Family, addr = state.IPv4, netip.AddrFrom4([4]byte(b[12:]))
		}
		port.Frontends = []plan.Frontend{{Frontend: serviceport.Frontend{Addr: addr, Port: 80}}, {Frontend: serviceport.Frontend{Addr: addr, Port: 443}}}
	}
	return p
}

// TestMemory limits the memory for each claim to 122 bytes. That includes its share of the entries of the Service and of
// its cluster IPs.
func TestMemory(t *testing.T) {
	plans := make([]*plan.Service, manyServices)
	for i := range plans {
		plans[i] = manyPlan(i)
	}
	before := heap()
	c := New()
	for _, p := range plans {
		c.Resolve(p, at(1))
	}
	each := float64(heap()-before) / (manyServices * perService)
	t.Logf("%.1f bytes per claim", each)
	if each > 122 {
		t.Errorf("%.1f bytes per claim, want at most 122", each)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(plans)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkResolve resolves one Service again among few Services and among many. The cost must be the same.
func BenchmarkResolve(b *testing.B) {
	for _, n := range []int{100, manyServices} {
		c := New()
		for i := range n {
			c.Resolve(manyPlan(i), at(1))
		}
		p := manyPlan(n / 2)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				c.Resolve(p, at(1))
			}
		})
	}
}

// BenchmarkNodePort gives a Service a node port and takes it away, among few Services with external IPs at other ports and
// among many. The cost must be the same.
func BenchmarkNodePort(b *testing.B) {
	for _, n := range []int{100, manyServices} {
		c := New()
		for i := range n {
			c.Resolve(planOf(fmt.Sprint("s", i), fmt.Sprintf("+203.0.113.9:%d/tcp", i+1)), at(1))
		}
		with, without := planOf("web", "*4:65000/tcp"), planOf("web", "")
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				c.Resolve(with, at(1))
				c.Resolve(without, at(1))
			}
		})
	}
}

// rangesPlan has 85 ranges of ports at an external IP, as many as an annotation has room for. No two Services have one in common.
func rangesPlan(i int) *plan.Service {
	var words []string
	for j := range 85 {
		first := 1 + 700*j + i%650
		words = append(words, fmt.Sprintf("+203.0.113.%d:%d-%d/tcp", i/650, first, first+40))
	}
	return planOf(fmt.Sprint("ranges", i), strings.Join(words, " "))
}

// BenchmarkNodePortAmongRanges gives a Service a node port and takes it away, among Services with 85 ranges of ports each. No
// range has the node port. The cost must hardly grow with the number of Services.
func BenchmarkNodePortAmongRanges(b *testing.B) {
	for _, n := range []int{100, 1000, 10_000} {
		c := New()
		for i := range n {
			c.Resolve(rangesPlan(i), at(1))
		}
		with, without := planOf("web", "*4:65000/tcp"), planOf("web", "")
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				c.Resolve(with, at(2))
				c.Resolve(without, at(2))
			}
		})
	}
}

// startAmong resolves Services as a start does, chunk by chunk, and again what that affects. Each is stronger than those
// before it. It returns how many plans that takes.
func startAmong(n int, ports func(i int) string) (plans int) {
	const chunk = 128 // less than planning.ChunkSize, so that fewer Services show the growth
	c, words, again := New(), map[string]string{}, map[string]bool{}
	resolve := func(name string, i int) {
		plans++
		_, replan := c.Resolve(planOf(name, words[name]), at(n-i))
		for _, other := range replan {
			again[other.Name] = true
		}
	}
	for i := range n {
		name := fmt.Sprint(i)
		words[name] = "+203.0.113.9:" + ports(i) + "/tcp"
		resolve(name, i)
		if i%chunk == chunk-1 || i == n-1 {
			for other := range again {
				j, _ := strconv.Atoi(other)
				resolve(other, j)
			}
			clear(again)
		}
	}
	return plans
}

// BenchmarkEqualRanges starts among Services that ask for the same range. The cost must grow with their number, and not with
// its square.
func BenchmarkEqualRanges(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				b.ReportMetric(float64(startAmong(n, func(int) string { return "1000-2000" }))/float64(n), "plans/service")
			}
		})
	}
}

// BenchmarkOverlappingRanges starts among Services with different ranges that overlap. The cost must hardly grow faster than their
// number.
func BenchmarkOverlappingRanges(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		for name, ports := range map[string]func(i int) string{
			"nested":     func(i int) string { return fmt.Sprintf("%d-%d", 1+i, 65_535-i) },
			"equal ends": func(i int) string { return fmt.Sprintf("%d-20000", 1+i) },
			"random":     func(i int) string { return fmt.Sprintf("%d-%d", 1+i*7919%30_000, 30_000+i*104_729%30_000) },
		} {
			b.Run(fmt.Sprint(name, "/", n), func(b *testing.B) {
				for b.Loop() {
					b.ReportMetric(float64(startAmong(n, ports))/float64(n), "plans/service")
				}
			})
		}
	}
}

// TestStartAmongRanges: of many Services with the same range, or with ranges that overlap, each is planned twice at most.
func TestStartAmongRanges(t *testing.T) {
	const n = 1024
	for name, ports := range map[string]func(i int) string{
		"equal":   func(int) string { return "1000-2000" },
		"overlap": func(i int) string { return fmt.Sprintf("%d-20000", 1+i) },
	} {
		if plans := startAmong(n, ports); plans > 2*n {
			t.Errorf("%s: %d plans of %d Services", name, plans, n)
		}
	}
}

// BenchmarkLoser resolves a Service that loses all its frontends to an older one. The cost must grow with their number,
// and not with its square.
func BenchmarkLoser(b *testing.B) {
	for _, n := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			c := New()
			c.Resolve(loserPlan("winner", n), at(1))
			c.Resolve(loserPlan("loser", n), at(2))
			for b.Loop() {
				b.StopTimer()
				p := loserPlan("loser", n)
				b.StartTimer()
				c.Resolve(p, at(2))
			}
		})
	}
}

// loserPlan has 100 external IPs and n frontends.
func loserPlan(name string, n int) *plan.Service {
	p := &plan.Service{Name: state.Name{Namespace: "ns", Name: name}, Ports: make([]plan.Port, n/100)}
	for i := range p.Ports {
		port := &p.Ports[i]
		port.Protocol, port.Family = state.TCP, state.IPv4
		for j := range 100 {
			addr := netip.AddrFrom4([4]byte{203, 0, 113, byte(j)})
			port.Frontends = append(port.Frontends, plan.Frontend{Kind: plan.ExternalIP, Frontend: serviceport.Frontend{Addr: addr, Port: uint16(i + 1)}})
		}
	}
	return p
}

// TestLoserHasFewProblems: a Service that loses thousands of frontends gets Problems about the first ones only.
func TestLoserHasFewProblems(t *testing.T) {
	c := New()
	c.Resolve(loserPlan("winner", 5000), at(1))
	problems, _ := c.Resolve(loserPlan("loser", 5000), at(2))
	if len(problems) != state.MaxProblems+1 {
		t.Fatalf("%d problems, want %d and one that counts the others", len(problems), state.MaxProblems)
	}
	if got := problems[state.MaxProblems]; got.Reason != "and 4992 more problems" || got.More != 4992 {
		t.Errorf("the last problem is %+v", got)
	}
}
