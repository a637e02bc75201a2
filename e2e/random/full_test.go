//go:build e2e

package random

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// fullPool is the largest number of endpoints of a Service port.
const fullPool = 65_536

// perSlice is how many endpoints the API server takes in a slice.
const perSlice = 1000

// TestFullPool has a Service with 65,536 endpoints change under traffic. Its clients notice nothing, and neither do those
// of other Services.
func TestFullPool(t *testing.T) {
	n := newNode(t, rand.New(rand.NewPCG(1, 1)), "")
	n.stop()
	// A share of a processor would have the changes wait for minutes where the kernel is slow.
	n.budgets = []string{"--max-service-elements=1000000", "--max-namespace-elements=1000000", "--max-namespace-changes=1000000"}
	n.start()
	n.equal("the untouched Services")
	clients := n.watch(lab.Families()...)
	n.full(fullPool, nil)
	for _, place := range []string{lab.Outside, "d"} {
		at, to := n.world.At(t, place), netip.AddrPortFrom(lab.Address(lab.IPv6, "VIP3"), 80)
		clients.run(func() { clients.connect(at, []netip.AddrPort{to}, false) })
		clients.run(func() { clients.hold(at, lab.Question{Protocol: lab.TCP, To: to, Patience: answerIn}) }) // over UDP, pod c answers from its main address
	}
	for _, tt := range []struct {
		endpoints int
		change    func(*corev1.Service)
	}{
		{fullPool - 1, nil}, {fullPool, scheduled("mh")},
		{fullPool, func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }}, {10, nil}, {fullPool, nil},
	} {
		n.full(tt.endpoints, tt.change)
		clients.noticeNothing(n.history)
	}
	clients.end(n.history)
	t.Log(clients)
}

func scheduled(by string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations = map[string]string{"verdict-proxy.github.io/scheduler": by} }
}

// full writes the Service, and waits until the kernel has it.
func (n *node) full(endpoints int, change func(*corev1.Service)) {
	n.Helper()
	s := objects.Service("full", "full", lab.Address(lab.IPv6, "VIP3").String())
	s.Spec.Ports = []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 80},
	}
	if change != nil {
		change(s)
	}
	list := []any{s}
	for first := 0; first < endpoints; first += perSlice {
		sl := objects.Slice(s.Namespace, s.Name, lab.IPv6, first, objects.SlicePort("http", corev1.ProtocolTCP, 8083), objects.SlicePort("dns", corev1.ProtocolUDP, 8083))
		for i := first; i < min(first+perSlice, endpoints); i++ {
			addr := lab.Member(lab.IPv6, "MANY", i)
			sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr.String()}, NodeName: new(lab.RemoteNodeName)})
		}
		list = append(list, sl)
	}
	began := time.Now()
	n.write("full", objects.Manifest(list...))
	n.note(fmt.Sprintf("%d endpoints", endpoints))
	n.equal(n.history[len(n.history)-1])
	n.Logf("%d endpoints, %v: equal after %v", endpoints, s.Annotations, time.Since(began).Round(time.Millisecond))
}
