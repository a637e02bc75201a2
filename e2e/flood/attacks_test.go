//go:build e2e

package flood

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// attacks are what cost other tenants much time once. Each needs no right but to write objects of one namespace, to send
// packets, or to run a program on the node.
func attacks() []attack {
	return []attack{
		{name: "15 Services with mh and 900 endpoints are deleted", objects: hashed, begin: deleted(hashed)},
		{name: "a Service with mh and 900 endpoints is deleted and made again, each second", objects: func() []object { return hashed()[:2] },
			begin: func(_ *testing.B, bed *bed) func() {
				return bed.rewrite(time.Second, bed.server.encodeDeletion(hashed()[:1]...), bed.server.encode(hashed()[:1]...))
			}},
		{name: "a Service with mh has 900 endpoints, other ones each second", objects: func() []object { return hashed()[:2] },
			begin: rewritten(time.Second, []object{pool("hashed-0", 230, 900)}, []object{pool("hashed-0", 200, 900)})},
		{name: "30 ports with mh and endpoints of their own, other ones each second", objects: func() []object { return hashedPorts(0) },
			begin: rewritten(time.Second, hashedPorts(1)[1:], hashedPorts(0)[1:])},
		{name: "16,000 ports x 16,000 external IPs in one object, 10 times a second", begin: rewritten(100*time.Millisecond, square(0), square(1))},
		{name: "4,000 ports x 24 endpoints, other ones twice a second", objects: func() []object { return manyPorts(0) },
			begin: rewritten(500*time.Millisecond, manyPorts(1)[1:], manyPorts(0)[1:])},
		{name: "an older range takes 496 ports at 64 addresses, and gives them back, each second", objects: taken,
			begin: rewritten(time.Second, taker(64), taker(0))},
		{name: "a range at 4,000 external IPs is deleted and made again, each second", objects: wideRange, begin: func(_ *testing.B, bed *bed) func() {
			return bed.rewrite(time.Second, bed.server.encodeDeletion(wideRange()[0]), bed.server.encode(wideRange()[0]))
		}},
		{name: "its only endpoint goes, and returns after 3 s", objects: wideRange,
			begin: rewritten(3*time.Second, []object{emptied(wideRange()[1])}, wideRange()[1:])},
		{name: "one of 40,000 ranges goes, and returns after 0.25 s", objects: manyRanges,
			begin: rewritten(time.Second/4, ranged(0, 398)[:1], ranged(0, 399)[:1])},
		{name: "128,000 forged UDP flows, their endpoints change 5 times a second; victim: a UDP client", objects: forged, begin: forging, victim: udpClient},
		{name: "40 threads read /metrics", objects: func() []object { return crowd(1000, 0) }, begin: func(b *testing.B, bed *bed) func() {
			_, stop := process(b, bed.Node.Namespace, "read http://127.0.0.1:10249/metrics")
			return stop
		}},
		{name: "40 Services with 4,000 external IPs, 85 of which change each second", objects: func() []object { return append(wideServices(0), wideSlices()...) },
			begin: oneByOne(time.Second/85, wideServices(1), wideServices(0)), period: 12 * time.Second},
	}
}

// rewritten is an attack that writes lists of objects in turn.
func rewritten(period time.Duration, lists ...[]object) func(*testing.B, *bed) func() {
	return func(_ *testing.B, bed *bed) func() {
		var encoded [][]written
		for _, list := range lists {
			encoded = append(encoded, bed.server.encode(list...))
		}
		return bed.rewrite(period, encoded...)
	}
}

// oneByOne writes the objects of the lists in turn.
func oneByOne(period time.Duration, lists ...[]object) func(*testing.B, *bed) func() {
	return rewritten(period, slices.Collect(slices.Chunk(slices.Concat(lists...), 1))...)
}

// deleted is an attack that deletes objects.
func deleted(objects func() []object) func(*testing.B, *bed) func() {
	return func(_ *testing.B, bed *bed) func() {
		bed.server.write(bed.server.encodeDeletion(objects()...))
		return func() {}
	}
}

// tenants is a Service of the tenant with TCP alone.
func tenants(name string, at netip.AddrPort, externals ...string) *corev1.Service {
	o := service("tenant", name, at, false)
	o.Spec.Ports, o.Spec.ExternalIPs = o.Spec.Ports[:1], externals
	return o
}

// address is the n-th one of a network.
func address(a, b byte, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{a, b, byte(n >> 8), byte(n)})
}

func addresses(a, b byte, n int) (list []string) {
	for i := range n {
		list = append(list, address(a, b, i).String())
	}
	return list
}

func hashed() (list []object) {
	for i := range 15 {
		name := fmt.Sprintf("hashed-%d", i)
		svc := tenants(name, netip.AddrPortFrom(address(10, 98, i), 80))
		svc.Annotations = map[string]string{"verdict-proxy.github.io/scheduler": "mh"}
		list = append(list, svc, pool(name, 200+byte(i), 900))
	}
	return list
}

// hashedPorts are a Service and a slice for each port. The endpoints depend on the round.
func hashedPorts(round int) []object {
	svc := hashed()[0].(*corev1.Service)
	list := []object{svc}
	svc.Spec.Ports = nil
	for i := range 30 {
		name := fmt.Sprint("p", i)
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: int32(i + 1)})
		s := slice("tenant", svc.Name, netip.AddrPortFrom(address(10, 200, 4*i+2*round), 80), netip.AddrPortFrom(address(10, 200, 4*i+2*round+1), 80))
		s.Name, s.Ports = fmt.Sprint(s.Name, "-", i), []discoveryv1.EndpointPort{{Name: ptr.To(name), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](80)}}
		list = append(list, s)
	}
	return list
}

// pool is a slice of the tenant with n endpoints.
func pool(name string, network byte, n int) *discoveryv1.EndpointSlice {
	var list []netip.AddrPort
	for i := range n {
		list = append(list, netip.AddrPortFrom(address(10, network, i), 8080))
	}
	return slice("tenant", name, list...)
}

// square is a Service with many frontends that are not served. What is served does not depend on the round.
func square(round int) []object {
	const side = 16_000
	svc := tenants("square", netip.MustParseAddrPort("10.98.1.1:80"), addresses(203, 0, side)...)
	svc.Spec.ExternalIPs[side-1], svc.Spec.Ports = address(203, 1, round).String(), nil
	for i := range side {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", i), Protocol: corev1.ProtocolTCP, Port: int32(i + 1)})
	}
	return []object{svc}
}

// manyPorts is a Service and its slice. The endpoints depend on the round.
func manyPorts(round int) []object {
	svc, s := tenants("ports", netip.MustParseAddrPort("10.98.1.2:80")), pool("ports", 210+byte(round), 24)
	svc.Spec.Ports, s.Ports = nil, nil
	for i := range 4000 {
		name := fmt.Sprint("p", i)
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: int32(i + 1)})
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(name), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(i + 1))})
	}
	return []object{svc, s}
}

// taken are 8 Services of other tenants, with 62 ports each at 64 addresses, and the one that takes them without an address.
func taken() []object {
	list := taker(0)
	for i := range 8 {
		namespace, name := fmt.Sprintf("other-%d", i), "taken"
		svc, s := service(namespace, name, netip.AddrPortFrom(address(10, 98, 300+i), 80), false), slice(namespace, name, pod("a", 8080))
		svc.CreationTimestamp = metav1.Now()
		svc.Spec.Ports, svc.Spec.ExternalIPs, s.Ports = nil, addresses(203, 0, 64), nil
		for j := range 62 {
			name := fmt.Sprint("p", j)
			svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: int32(10_001 + 62*i + j)})
			s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To(name), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)})
		}
		list = append(list, svc, s)
	}
	return list
}

// taker is an older Service with a range that has all these ports, at some of the addresses.
func taker(n int) []object {
	svc, s := portRange("taker", netip.MustParseAddrPort("10.98.1.3:10000"), addresses(203, 0, n)...)
	svc.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	return []object{svc, s}
}

// portRange is a Service of the tenant with a range of 1,000 ports, and its slice with one endpoint.
func portRange(name string, at netip.AddrPort, externals ...string) (*corev1.Service, *discoveryv1.EndpointSlice) {
	svc := tenants(name, at, externals...)
	svc.Annotations = map[string]string{"verdict-proxy.github.io/port-ranges": fmt.Sprintf("%d-%d", at.Port(), at.Port()+999)}
	return svc, slice("tenant", name, pod("a", at.Port()))
}

func wideRange() []object {
	svc, s := portRange("range", netip.MustParseAddrPort("10.98.1.4:10000"), addresses(203, 0, 4000)...)
	return []object{svc, s}
}

// emptied is a slice without its endpoints.
func emptied(o object) object {
	s := o.(*discoveryv1.EndpointSlice).DeepCopy()
	s.Endpoints = nil
	return s
}

// ranged is a Service with a range at a cluster IP and n external IPs.
func ranged(i, n int) []object {
	svc, s := portRange(fmt.Sprint("ranged-", i), netip.AddrPortFrom(address(10, 98, 600+i), 10_000), addresses(203, byte(i), n)...)
	return []object{svc, s}
}

func manyRanges() (list []object) {
	for i := range 100 {
		list = append(list, ranged(i, 399)...)
	}
	return list
}

// wideServices are Services of which one address depends on the round.
func wideServices(round int) (list []object) {
	const wide = 4000
	for i := range 40 {
		name := fmt.Sprint("wide-", i)
		svc := tenants(name, netip.AddrPortFrom(address(10, 98, 1000+i), 80), addresses(203, byte(i), wide)...)
		svc.Spec.ExternalIPs[wide-1] = address(203, 100+byte(i), round).String()
		list = append(list, svc)
	}
	return list
}

func wideSlices() (list []object) {
	for _, svc := range wideServices(0) {
		list = append(list, slice("tenant", svc.GetName(), pod("a", 8080)))
	}
	return list
}

// forgedFrontend is where forged flows go.
var forgedFrontend = netip.MustParseAddrPort("10.98.1.5:80")

// forgedEndpoints is how many endpoints there are, nobody of whom answers. The clients are masqueraded, and so there are no
// more than 64,512 flows to each.
const forgedEndpoints = 8

// udpFrontend is that of a Service whose client must come to the new endpoint.
var udpFrontend = netip.MustParseAddrPort("10.96.0.17:80")

func forged() []object {
	return []object{
		service("tenant", "forged", forgedFrontend, false), pool("forged", 220, forgedEndpoints),
		service("shop", "udp", udpFrontend, false), slice("shop", "udp", pod("a", 8080)),
	}
}

// forging makes 128,000 flows with forged sources, and then gives their Service other endpoints again and again, and some
// of the flows that the cleaner removes.
func forging(b *testing.B, bed *bed) func() {
	var f *forger
	bed.At(b, lab.Outside).MustDo(b, func() (err error) { f, err = newForger(lab.UDP, forgedFrontend); return err })
	send := func(n int) {
		for range n {
			if err := f.send(); err != nil {
				b.Error(err)
				return
			}
		}
	}
	for tries := 0; bed.tracked(b, "count") < 128_000; tries++ { // the kernel loses packets of a burst
		if tries == 400 {
			b.Fatalf("only %d flows after %d packets", bed.tracked(b, "count"), f.sent)
		}
		send(1000)
	}
	list := [][]written{bed.server.encode(pool("forged", 221, forgedEndpoints)), bed.server.encode(pool("forged", 220, forgedEndpoints))}
	return repeat(200*time.Millisecond, func(n int) {
		bed.server.write(list[n%2])
		send(5000)
	})
}

// udpClient is a client of a Service that gets another endpoint. A change has arrived when the client has.
func udpClient(b *testing.B, bed *bed) (change func() time.Duration) {
	flow, _ := bed.At(b, "y").Hold(b, lab.Question{Protocol: lab.UDP, To: udpFrontend, Patience: stuck})
	places, n := []string{"a", "b"}, 0
	return func() time.Duration {
		n++
		to := places[n%2]
		began := time.Now()
		bed.server.put(slice("shop", "udp", pod(to, 8080)))
		pace := time.NewTicker(2 * time.Millisecond)
		defer pace.Stop()
		for range pace.C {
			if r := flow.Send(100 * time.Millisecond); r.Outcome == lab.Answered && r.Answer.Pod == to {
				return time.Since(began)
			}
			if time.Since(began) > stuck {
				b.Fatalf("the client does not come to the new endpoint within %s", stuck)
			}
		}
		return 0
	}
}
