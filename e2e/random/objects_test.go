//go:build e2e

package random

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

func oneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// address looks up an address whose name stands in this package.
func address(f lab.Family, name string) netip.Addr {
	a, err := lab.Lookup(f, name)
	if err != nil {
		panic(err)
	}
	return a
}

func text(f lab.Family, name string) string {
	s, err := lab.Text(f, name)
	if err != nil {
		panic(err)
	}
	return s
}

func manifest(objects ...any) string {
	var b strings.Builder
	for _, o := range objects {
		line, err := json.Marshal(o)
		if err != nil {
			panic(err) // the types are those of Kubernetes
		}
		fmt.Fprintf(&b, "---\n%s\n", line)
	}
	return b.String()
}

func newService(namespace, name string, ips ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	s.APIVersion, s.Kind = "v1", "Service"
	s.Spec.Type, s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ServiceTypeLoadBalancer, ips[0], ips
	return s
}

func newSlice(s *corev1.Service, f lab.Family, number int, ports ...discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressType(f.String()), Ports: ports}
	sl.APIVersion, sl.Kind = "discovery.k8s.io/v1", "EndpointSlice"
	sl.Namespace, sl.Name = s.Namespace, fmt.Sprintf("%s-%d-%d", s.Name, f, number)
	sl.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name}
	return sl
}

func slicePort(name string, p corev1.Protocol, port int) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Protocol: &p, Port: new(int32(port))}
}

// randomManifest is a Service with slices. Addresses and node ports are few, so Services take them from each other.
func randomManifest(r *rand.Rand, name string) string {
	s := randomService(r, name)
	objects := []any{s}
	for _, f := range lab.Families() {
		for number := range r.IntN(3) {
			objects = append(objects, randomSlice(r, s, f, number))
		}
	}
	return manifest(objects...)
}

// randomMode says how a Service picks an endpoint.
func randomMode(r *rand.Rand, s *corev1.Service) {
	s.Annotations = map[string]string{}
	if r.IntN(2) == 0 {
		s.Annotations["verdict-proxy.github.io/scheduler"] = oneOf(r, "random", "rr", "wrr", "lc", "wlc", "sh", "mh", "dh", "sed", "nq", "fo", "ovf", "lblc", "lblcr", "twos")
	}
	if r.IntN(3) == 0 {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(oneOf[int32](r, 1, 60, 600, 10800))}}
	}
}

func randomService(r *rand.Rand, name string) *corev1.Service {
	ip := r.IntN(40)
	ips := oneOf(r, []string{fmt.Sprintf("10.96.1.%d", ip)}, []string{fmt.Sprintf("fd00:10:96::1:%x", ip)},
		[]string{fmt.Sprintf("10.96.1.%d", ip), fmt.Sprintf("fd00:10:96::1:%x", ip)})
	s := newService(oneOf(r, "one", "two", "two"), name, ips...)
	if r.IntN(6) == 0 { // of full length
		s.Namespace, s.Name = strings.Repeat("n", 63), name+strings.Repeat("s", 63-len(name))
	}
	spec := &s.Spec
	randomMode(r, s)
	spec.InternalTrafficPolicy = new(oneOf(r, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal))
	spec.ExternalTrafficPolicy = oneOf(r, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	for i := range 1 + r.IntN(3) {
		p := corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(80 + 10*i + r.IntN(2)), Protocol: randomProtocol(r)}
		if r.IntN(2) == 0 {
			p.NodePort = int32(30200 + r.IntN(20))
		}
		spec.Ports = append(spec.Ports, p)
	}
	randomExternal(r, s)
	return s
}

func randomProtocol(r *rand.Rand) corev1.Protocol {
	return oneOf(r, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

func randomExternal(r *rand.Rand, s *corev1.Service) {
	if r.IntN(4) == 0 {
		s.Spec.ExternalIPs = []string{fmt.Sprintf("198.51.100.%d", 100+r.IntN(20)), fmt.Sprintf("2001:db8:198::%x", 0x100+r.IntN(20))}
	}
	if r.IntN(2) == 0 {
		return
	}
	for _, ip := range []string{fmt.Sprintf("203.0.113.%d", 100+r.IntN(20)), fmt.Sprintf("2001:db8:203::%x", 0x100+r.IntN(20))} {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	s.Spec.LoadBalancerSourceRanges = oneOf(r, nil,
		[]string{"192.168.7.0/24"}, []string{"192.168.7.11/32", "fd00:7::/64", "192.168.0.0/16"}, []string{"0.0.0.0/0", "::/0"},
		[]string{"10.0.0.0/9", "10.128.0.0/9", "10.64.0.0/10"})
}

// randomSlice has endpoints behind pod c, and pod b.
func randomSlice(r *rand.Rand, s *corev1.Service, f lab.Family, number int) *discoveryv1.EndpointSlice {
	sl := newSlice(s, f, number)
	if r.IntN(4) == 0 {
		sl.Annotations = map[string]string{"verdict-proxy.github.io/weight": oneOf(r, "0", "1", "3", "100")}
	}
	for i := range s.Spec.Ports {
		sl.Ports = append(sl.Ports, slicePort(s.Spec.Ports[i].Name, oneOf(r, s.Spec.Ports[i].Protocol, s.Spec.Ports[i].Protocol, randomProtocol(r)), 8083))
	}
	used := map[netip.Addr]bool{}
	for range r.IntN(oneOf(r, 4, 12, 60)) {
		addr, node := lab.PodAddress(f, "b"), lab.NodeName
		if r.IntN(3) > 0 {
			addr, _ = lab.Nth(text(f, "MANY"), 1+r.IntN(100)) // the range is right
			node = lab.RemoteNodeName
		}
		if !used[addr] {
			used[addr] = true
			sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr.String()}, NodeName: &node, Conditions: randomConditions(r)})
		}
	}
	return sl
}

func randomConditions(r *rand.Rand) discoveryv1.EndpointConditions {
	switch r.IntN(8) {
	case 0:
		return discoveryv1.EndpointConditions{}
	case 1:
		return discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)}
	case 2:
		return discoveryv1.EndpointConditions{Ready: new(false)}
	}
	return discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)}
}

// The Services that nobody touches. Pods a and c answer for them, each Service at a port of its own.
const (
	webPort, stickyPort, modalPort             = 8080, 8081, 8082
	webNodePort, stickyNodePort, modalNodePort = 30080, 30090, 30100
)

// ips is an address of both families.
func ips(name string) []string {
	return []string{address(lab.IPv4, name).String(), address(lab.IPv6, name).String()}
}

// modal is a Service whose way to pick an endpoint changes, and nothing else. Its clients must not notice that, either.
func modal(change func(*corev1.Service)) string {
	s := newService("untouched", "modal", ips("VIP4")...)
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: modalNodePort}}
	change(s)
	return untouchedManifest(s, slicePort("http", corev1.ProtocolTCP, modalPort))
}

// untouched are the manifests of these Services, by the names of their files.
func untouched() map[string]string {
	web := newService("untouched", "web", ips("VIP1")...)
	web.Spec.ExternalIPs = ips("EXT1")
	web.Spec.Ports = []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: webNodePort},
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 80, NodePort: webNodePort},
	}
	for _, ip := range ips("LB1") {
		web.Status.LoadBalancer.Ingress = append(web.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
	sticky := newService("untouched", "sticky", ips("VIP2")...)
	sticky.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	sticky.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: stickyNodePort}}
	return map[string]string{
		"web":    untouchedManifest(web, slicePort("http", corev1.ProtocolTCP, webPort), slicePort("dns", corev1.ProtocolUDP, webPort)),
		"sticky": untouchedManifest(sticky, slicePort("http", corev1.ProtocolTCP, stickyPort)),
		"modal":  modal(func(*corev1.Service) {}),
	}
}

func untouchedManifest(s *corev1.Service, ports ...discoveryv1.EndpointPort) string {
	objects := []any{s}
	for _, f := range lab.Families() {
		sl := newSlice(s, f, 0, ports...)
		for _, pod := range []string{"a", "c"} {
			sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{lab.PodAddress(f, pod).String()}, NodeName: new(lab.NodeOf(pod)),
				Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
			})
		}
		objects = append(objects, sl)
	}
	return manifest(objects...)
}
