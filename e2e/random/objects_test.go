//go:build e2e || ipvs

package random

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// randomManifest is a Service with slices. Addresses and node ports are few, so Services take them from each other.
func randomManifest(r *rand.Rand, name string) string {
	ip, namespace := r.IntN(40), objects.OneOf(r, "one", "two", "two")
	if r.IntN(6) == 0 {
		namespace, name = objects.Full("n"), objects.Full(name)
	}
	v4, v6 := fmt.Sprintf("10.96.1.%d", ip), fmt.Sprintf("fd00:10:96::1:%x", ip)
	s := objects.RandomService(r, namespace, name, objects.OneOf(r, []string{v4}, []string{v6}, []string{v4, v6})...)
	for i := range s.Spec.Ports {
		if r.IntN(2) == 0 {
			s.Spec.Ports[i].NodePort = int32(30200 + r.IntN(20))
		}
	}
	list := []any{s}
	for _, f := range lab.Families() {
		for number := range r.IntN(3) {
			list = append(list, objects.RandomSlice(r, namespace, name, f, number))
		}
	}
	return objects.Manifest(list...)
}

// The Services that nobody touches. Pods a and c answer for them, each Service at a port of its own.
const (
	webPort, stickyPort, modalPort             = 8080, 8081, 8082
	webNodePort, stickyNodePort, modalNodePort = 30080, 30090, 30100
)

// modal is a Service whose way to pick an endpoint changes, and the name of its port. Its clients must not notice that.
func modal(change func(*corev1.Service)) string {
	s := objects.Service("untouched", "modal", lab.Both("VIP4")...)
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: modalNodePort}}
	change(s)
	return untouchedManifest(s, objects.SlicePort(s.Spec.Ports[0].Name, corev1.ProtocolTCP, modalPort))
}

// untouched are the manifests of these Services, by the names of their files.
func untouched() map[string]string {
	web := objects.Service("untouched", "web", lab.Both("VIP1")...)
	web.Spec.ExternalIPs = lab.Both("EXT1")
	web.Spec.Ports = []corev1.ServicePort{
		{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: webNodePort},
		{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 80, NodePort: webNodePort},
	}
	objects.AddIngress(web, lab.Both("LB1")...)
	sticky := objects.Service("untouched", "sticky", lab.Both("VIP2")...)
	sticky.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	sticky.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: stickyNodePort}}
	return map[string]string{
		"web":    untouchedManifest(web, objects.SlicePort("http", corev1.ProtocolTCP, webPort), objects.SlicePort("dns", corev1.ProtocolUDP, webPort)),
		"sticky": untouchedManifest(sticky, objects.SlicePort("http", corev1.ProtocolTCP, stickyPort)),
		"modal":  modal(func(*corev1.Service) {}),
	}
}

func untouchedManifest(s *corev1.Service, ports ...discoveryv1.EndpointPort) string {
	list := []any{s}
	for _, f := range lab.Families() {
		sl := objects.Slice(s.Namespace, s.Name, f, 0, ports...)
		objects.AddPods(sl, f, "a", "c")
		list = append(list, sl)
	}
	return objects.Manifest(list...)
}
