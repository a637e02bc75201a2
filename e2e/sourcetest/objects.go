package sourcetest

import (
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Service returns an ordinary Service, changed by the given function.
func Service(changes ...func(*corev1.Service)) *corev1.Service {
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web",
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.FixedZone("x", 3600))),
		},
		Spec: corev1.ServiceSpec{
			Type:       corev1.ServiceTypeClusterIP,
			ClusterIP:  "10.96.0.10",
			ClusterIPs: []string{"10.96.0.10", "fd00::10"},
			Ports:      []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
		},
	}
	for _, c := range changes {
		c(o)
	}
	return o
}

func LoadBalancer(o *corev1.Service, ingress ...corev1.LoadBalancerIngress) {
	o.Spec.Type = corev1.ServiceTypeLoadBalancer
	o.Status.LoadBalancer.Ingress = ingress
}

func Slice(changes ...func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web-x7k2p", Labels: map[string]string{discoveryv1.LabelServiceName: "web"},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
	for _, c := range changes {
		c(o)
	}
	return o
}

func Node(name string, changes ...func(*corev1.Node)) *corev1.Node {
	o := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, c := range changes {
		c(o)
	}
	return o
}

func Ranges(name string, cidrs ...string) *networkingv1.ServiceCIDR {
	return &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: cidrs}}
}

// examples are values that set the fields of annotations.
func examples() map[string]string {
	values := map[string]string{}
	for _, a := range state.Annotations() {
		values[a.Key] = a.Example
	}
	return values
}

// CompleteService has a value in every field that matters to the proxy.
func CompleteService() *corev1.Service {
	return Service(func(o *corev1.Service) {
		LoadBalancer(o, corev1.LoadBalancerIngress{IP: "198.51.100.1"})
		o.UID = "6a3c1f5e-0b8d-4c57-9d0e-2f1a7b9c8d7e"
		o.Annotations = examples()
		o.Spec.ExternalIPs = []string{"203.0.113.1"}
		o.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
		o.Spec.Ports[0].NodePort = 30080
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		o.Spec.InternalTrafficPolicy = new(corev1.ServiceInternalTrafficPolicyLocal)
		o.Spec.HealthCheckNodePort = 32000
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	})
}

// CompleteSlice has a value in every field that matters to the proxy.
func CompleteSlice() *discoveryv1.EndpointSlice {
	return Slice(func(o *discoveryv1.EndpointSlice) {
		o.Annotations = examples()
		o.Annotations[corev1.EndpointsLastChangeTriggerTime] = time.Unix(1_700_000_000, 0).Format(time.RFC3339Nano)
		o.Endpoints[0].NodeName, o.Endpoints[0].Zone = new("n1"), new("a")
		o.Endpoints[0].Conditions.Terminating = new(true)
		o.Endpoints[0].Hints = &discoveryv1.EndpointHints{
			ForZones: []discoveryv1.ForZone{{Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "n1"}},
		}
	})
}

// CompleteNode has a value in every field that matters to the proxy.
func CompleteNode() *corev1.Node {
	return Node("n1", func(o *corev1.Node) {
		o.ObjectMeta = metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "a"}}
		o.Spec.PodCIDRs, o.Spec.Taints, o.DeletionTimestamp = []string{"10.1.0.0/24"}, []corev1.Taint{{Key: "k"}}, new(metav1.Now())
		o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	})
}

// Annotated returns a Service with this value of all annotations.
func Annotated(value string) *corev1.Service {
	return Service(func(o *corev1.Service) { o.Annotations = EveryKey(value) })
}

// EveryKey has all keys that are read, also those of other proxies.
func EveryKey(value string) map[string]string {
	values := map[string]string{}
	for _, a := range state.Annotations() {
		values[a.Key] = value
		for _, alias := range a.Aliases {
			values[alias.Key] = value
		}
	}
	return values
}

// boundedProblems: a tenant's text must not fill the log or an Event.
func BoundedProblems(t *testing.T, list []state.Problem) {
	t.Helper()
	const most, longest = 1000, 4096
	if len(list) > most {
		t.Fatalf("%d problems of one object", len(list))
	}
	for _, p := range list {
		if p.Reason == "" || len(p.Reason) > longest {
			t.Fatalf("a problem with a text of %d bytes: %.300s", len(p.Reason), p.Reason)
		}
	}
}

func ServiceWithExternalIPs(n int) *corev1.Service {
	return Service(func(o *corev1.Service) {
		for i := range n {
			o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, fmt.Sprintf("203.%d.%d.%d", i/62500, i/250%250, i%250+1))
		}
	})
}

func Addrs(list ...string) []netip.Addr { return parsed(netip.MustParseAddr, list) }

func Prefixes(list ...string) []netip.Prefix { return parsed(netip.MustParsePrefix, list) }

func parsed[T any](parse func(string) T, list []string) (out []T) {
	for _, s := range list {
		out = append(out, parse(s))
	}
	return out
}

func HeldMemory() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// CompareValues compares values of package state. An empty list equals nil, as it does for planning.
var CompareValues = cmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
}
