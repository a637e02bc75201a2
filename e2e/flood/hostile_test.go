//go:build e2e

package flood

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verdict-proxy/verdict/e2e/daemon"
	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
)

// What a hostile tenant writes.
const hostileRate = 50 // objects of 1 MB a second: etcd writes no more

var hostileObjects = flag.Int("objects", 1000, "objects of 1 MB that BenchmarkHostile writes")

// hostile is an object of about 1 MB as the API server takes it: at most 256 kB of annotations, 1,000 endpoints in a
// slice, 63 bytes in a label. Some of it depends on the round.
func hostile(i, round int) object {
	name := fmt.Sprintf("hostile-%04d", i)
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 98, byte(i >> 8), byte(i)}), 80)
	end := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 200, byte(round), byte(i)}), 8080)
	switch i % 4 {
	case 0:
		o := service("hostile", name, at, false)
		junk(&o.ObjectMeta, round)
		return o
	case 1:
		o := service("hostile", name, at, i%8 == 1)
		if i%16 == 5 {
			o.Annotations = map[string]string{"verdict-proxy.github.io/scheduler": "mh"}
		}
		for j := range 50_000 {
			o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, fmt.Sprintf("203.%d.%d.%d", (i+round)%256, j>>8, j%256))
		}
		return o
	case 2:
		o := slice("hostile", fmt.Sprintf("hostile-%04d", i-1), end)
		o.Name, o.Annotations = name, map[string]string{"verdict-proxy.github.io/weight": fmt.Sprint(29_989 + round)}
		for j := range 999 {
			o.Endpoints = append(o.Endpoints, hostileEndpoint(i, j, round))
		}
		return o
	default:
		o := slice("hostile", fmt.Sprintf("hostile-%04d", i-2), end)
		o.Name = name
		for j := range 12_000 {
			o.Ports = append(o.Ports, discoveryv1.EndpointPort{
				Name: ptr.To(fmt.Sprintf("port-%d-%d-%s", i, j, strings.Repeat("p", 40))), Port: ptr.To(int32(j + 1)),
				Protocol: ptr.To(corev1.ProtocolTCP), AppProtocol: ptr.To("example.com/hostile"),
			})
		}
		return o
	}
}

// hostileEndpoint has as many hints as the API allows.
func hostileEndpoint(i, j, round int) discoveryv1.Endpoint {
	h := &discoveryv1.EndpointHints{}
	for k := range 8 {
		h.ForZones = append(h.ForZones, discoveryv1.ForZone{Name: fmt.Sprintf("zone-%d-%d-%d-%s", i, j, k, strings.Repeat("z", 40))})
		h.ForNodes = append(h.ForNodes, discoveryv1.ForNode{Name: fmt.Sprintf("node-%d-%d-%d-%s", i, j, k, strings.Repeat("n", 40))})
	}
	addr := netip.AddrFrom4([4]byte{10, byte(201 + round%2), byte(j >> 8), byte(j)})
	return discoveryv1.Endpoint{Addresses: []string{addr.String()}, NodeName: ptr.To(fmt.Sprintf("node-%d-%d", i, j)), Hints: h}
}

// junk fills labels, annotations and the fields of managers.
func junk(m *metav1.ObjectMeta, round int) {
	m.Annotations = map[string]string{
		"verdict-proxy.github.io/scheduler": fmt.Sprint(round, strings.Repeat("a", 120_000)), "junk": strings.Repeat("b", 120_000),
	}
	m.Labels = map[string]string{}
	for j := range 5000 {
		m.Labels[fmt.Sprintf("label-%d", j)] = strings.Repeat("l", 63)
	}
	m.ManagedFields = []metav1.ManagedFieldsEntry{{
		Manager: "hostile", Operation: metav1.ManagedFieldsOperationApply, APIVersion: "v1", FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{"` + strings.Repeat("f", 400_000) + `":{}}}}`),
	}}
}

// hostileTenant writes some of its objects again and again, until stop is called.
func (b *bed) hostileTenant() (stop func()) {
	const some = 100
	var list [][]written
	for n := range 2 * some {
		list = append(list, b.server.encode(hostile(n%some, 1+n/some)))
	}
	return b.rewrite(time.Second/hostileRate, list...)
}

// rewrite writes the lists in turn, one in each period, until stop is called. They are encoded before, so that the daemon
// has the machine for itself.
func (b *bed) rewrite(period time.Duration, lists ...[]written) (stop func()) {
	return repeat(period, func(n int) { b.server.write(lists[n%len(lists)]) })
}

// repeat calls a function at once and after each period, until stop is called.
func repeat(period time.Duration, fn func(n int)) (stop func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(period)
		defer tick.Stop()
		for n := 0; ; n++ {
			fn(n)
			select {
			case <-ended:
				return
			case <-tick.C:
			}
		}
	})
	return func() { close(ended); running.Wait() }
}

// BenchmarkHostile measures how much memory the daemon takes for 1,000 objects of 1 MB, and how long a change of another
// namespace waits while the tenant writes them again and again.
func BenchmarkHostile(b *testing.B) {
	bed := newBed(b)
	watch := bed.stopwatch(b)
	for b.Loop() {
		calm, before, size := watch.sample(b, 5*time.Second), bed.memory(b), 0
		for i := range *hostileObjects {
			size += bed.server.put(hostile(i, 0))
			if i%100 == 99 {
				bed.settled(b, watch)
			}
		}
		after := bed.memory(b)
		stop := bed.hostileTenant()
		hostile := watch.sample(b, 20*time.Second)
		stop()
		bed.settled(b, watch)
		churned, mb := bed.memory(b), float64(size)/1e6
		b.ReportMetric(mb, "written-MB")
		b.ReportMetric(float64(before.RSS)/1e6, "before-MB")
		b.ReportMetric(float64(after.RSS)/1e6, "after-MB")
		b.ReportMetric(float64(churned.RSS)/1e6, "rewritten-MB")
		b.ReportMetric(float64(churned.Peak-before.RSS)/1e6/mb, "peak-growth/written")
		for name, s := range map[string]measure.Sample{"calm": calm, "hostile": hostile} {
			b.ReportMetric(measure.Milliseconds(s.Median()), "change-p50-"+name+"-ms")
			b.ReportMetric(measure.Milliseconds(s.Quantile(0.99)), "change-p99-"+name+"-ms")
		}
		b.ReportMetric(0, "ns/op")
	}
}

// settled waits until the daemon has read everything. The tenant's changes may wait.
func (b *bed) settled(t testing.TB, watch *stopwatch) {
	t.Helper()
	watch.catchUp(t)
	b.server.forget()
}

// sample makes changes for some time, each of them after a pause.
func (s *stopwatch) sample(b *testing.B, period time.Duration) (took measure.Sample) {
	b.Helper()
	for end := time.Now().Add(period); time.Now().Before(end); time.Sleep(idle) {
		took = append(took, s.change(b))
	}
	return took
}

// memory reads how much memory the daemon has.
func (b *bed) memory(t testing.TB) measure.Process {
	t.Helper()
	p, err := measure.Inspect(b.daemon.PID())
	lab.Must(t, err)
	return p
}

// askedFrontend is a Service of another namespace, which changes its only endpoint.
var askedFrontend = netip.MustParseAddrPort("10.96.0.15:80")

// BenchmarkHostileFlows measures how long the UDP flow of a client stays at an endpoint that was removed, while a tenant with
// 128,000 flows adds and removes an endpoint five times a second.
func BenchmarkHostileFlows(b *testing.B) {
	const forged, samples = 128_000, 30
	to := netip.MustParseAddrPort("10.96.0.16:80")
	ends := []netip.AddrPort{pod("a", 9), pod("b", 9), pod("c", 9), netip.MustParseAddrPort("172.16.0.1:9")} // each has room for 64,512 flows
	bed := newBed(b, service("hostile", "flows", to, false), slice("hostile", "flows", ends[:3]...), service("shop", "asked", askedFrontend, false))
	bed.Node.Must(b, "", "sysctl", "-qw", "net.netfilter.nf_conntrack_udp_timeout=600")
	for b.Loop() {
		calm := bed.staysFor(b, samples)
		for bed.tracked(b, "count") < forged*9/10 { // some packets are lost
			bed.burst(b, lab.Outside, lab.UDP, to, forged)
		}
		ended := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-ended:
					return
				case <-time.After(time.Second / 5):
					bed.server.put(slice("hostile", "flows", ends[:3+i%2]...))
				}
			}
		})
		hostile := bed.staysFor(b, samples)
		b.ReportMetric(float64(bed.tracked(b, "count")), "flows")
		close(ended)
		running.Wait()
		bed.forget(b)
		for name, s := range map[string]measure.Sample{"calm": calm, "hostile": hostile} {
			b.ReportMetric(measure.Milliseconds(s.Median()), "stale-p50-"+name+"-ms")
			b.ReportMetric(measure.Milliseconds(s.Quantile(0.99)), "stale-p99-"+name+"-ms")
		}
		b.ReportMetric(0, "ns/op")
	}
}

// staysFor has a client send, removes its endpoint, and waits until its flow is gone; n times, about once a second.
func (b *bed) staysFor(t testing.TB, n int) (took measure.Sample) {
	t.Helper()
	ends := []netip.AddrPort{pod("a", 8080), pod("b", 8080)}
	q := conntrack.Query{Protocol: uint8(lab.UDP), Src: lab.Address(lab.IPv4, "X"), SrcPort: 40_000, Dst: askedFrontend}
	flow := func() []conntrack.FoundFlow {
		list, err := conntrack.Find(conntrack.Options{NetNS: b.Node.Fd()}, q)
		lab.Must(t, err)
		return list
	}
	for i := range n {
		b.server.put(slice("shop", "asked", ends[i%2]))
		for end := time.Now().Add(daemon.Patience); len(flow()) == 0 || flow()[0].ReplySrc != ends[i%2]; time.Sleep(time.Second / 2) {
			if time.Now().After(end) {
				t.Fatalf("the client does not reach %s: %v", ends[i%2], flow())
			}
			b.At(t, lab.Outside).MustDo(t, func() error {
				fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					return err
				}
				return errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Port: int(q.SrcPort)}), unix.Sendto(fd, []byte("x"), 0,
					&unix.SockaddrInet4{Addr: q.Dst.Addr().As4(), Port: int(q.Dst.Port())}), unix.Close(fd))
			})
		}
		began := time.Now()
		b.server.put(slice("shop", "asked", ends[(i+1)%2]))
		for len(flow()) > 0 {
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(began))
	}
	return took
}
