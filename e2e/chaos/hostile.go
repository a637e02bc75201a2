package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

const hostileNamespace = "hostile"

// hostile makes Services that want the frontends of others, or want to be a burden.
func hostile() map[string]func(*rand.Rand, *corev1.Service) {
	return map[string]func(*rand.Rand, *corev1.Service){
		"external-ips": func(_ *rand.Rand, s *corev1.Service) { // those of the untouched Services, in all their roles
			for _, name := range []string{"VIP1", "VIP2", "LB1", "LB2", "EXT1", "NODE"} {
				s.Spec.ExternalIPs = append(s.Spec.ExternalIPs, texts(name)...)
			}
			s.Spec.Ports = append(s.Spec.Ports, port("node-port", 30080), port("node-port-too", 30090))
		},
		"load-balancer-ips": func(_ *rand.Rand, s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Spec.Ports = append(s.Spec.Ports, port("node-port", 30080))
			for _, ip := range append(append(texts("LB1"), texts("VIP1")...), texts("NODE")...) {
				s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
			}
		},
		"node-ports": func(_ *rand.Rand, s *corev1.Service) { // the API server refuses the first and takes the second
			s.Spec.Type = corev1.ServiceTypeNodePort
			s.Spec.Ports[0].NodePort, s.Spec.Ports[0].Protocol = 30080, corev1.ProtocolSCTP
		},
		"annotations": func(r *rand.Rand, s *corev1.Service) {
			garbage := oneOf(r, "\x00", strings.Repeat("rr,", 10_000), "{\"scheduler\":", "мх", "-1", "1e309", "rr\nlc")
			s.Annotations = map[string]string{
				"verdict-proxy.github.io/scheduler": garbage, "verdict-proxy.github.io/scheduler-flags": garbage,
				"kube-router.io/service.scheduler": garbage, "verdict-proxy.github.io/weight": garbage,
			}
		},
		"huge": func(_ *rand.Rand, s *corev1.Service) {
			s.Annotations = map[string]string{"junk": strings.Repeat("x", 250_000)}
		},
		"ports": func(r *rand.Rand, s *corev1.Service) {
			for i := range oneOf(r, 300, 300, 300, 2500) {
				s.Spec.Ports = append(s.Spec.Ports, port(fmt.Sprintf("p%d", i), int32(1000+i)))
			}
		},
		"source-ranges": func(r *rand.Rand, s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.200"}, {IP: "2001:db8:203::200"}}
			for range 300 {
				s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges,
					fmt.Sprintf("10.%d.%d.0/%d", r.IntN(256), r.IntN(256), 8+r.IntN(25)))
			}
		},
	}
}

// hostileNames are the keys in a fixed order, so that a seed repeats a choice.
func hostileNames() []string {
	return []string{"external-ips", "load-balancer-ips", "node-ports", "annotations", "huge", "ports", "source-ranges"}
}

func port(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: number, Protocol: corev1.ProtocolTCP}
}

// attack writes or removes hostile objects. The API server refuses some of them.
func (b *bed) attack(r *rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*writePatience)
	defer cancel()
	kinds := hostile()
	for range 1 + r.IntN(3) {
		kind := oneOf(r, hostileNames()...)
		name := fmt.Sprintf("%s-%d", kind, r.IntN(2))
		if r.IntN(2) == 0 {
			b.churn.note(b.churn.remove(ctx, hostileNamespace, name))
			continue
		}
		svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: hostileNamespace, Name: name}}
		svc.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyPreferDualStack)
		svc.Spec.Ports = []corev1.ServicePort{port("http", 80)}
		kinds[kind](r, svc)
		b.churn.note(b.churn.service(ctx, svc))
		b.churn.note(b.churn.slice(ctx, hostileSlice(name, svc.Spec.Ports)))
	}
}

// hostileSlice has up to a hundred ports, as many as the API server takes.
func hostileSlice(service string, ports []corev1.ServicePort) *discoveryv1.EndpointSlice {
	const most = 100
	sl := emptySlice(hostileNamespace, service, lab.IPv4, 0)
	for _, p := range ports[:min(most, len(ports))] {
		sl.Ports = append(sl.Ports, slicePort(p.Name, p.Protocol, churnTarget()))
	}
	sl.Endpoints = []discoveryv1.Endpoint{{
		Addresses: []string{lab.PodAddress(lab.IPv4, "b").String()}, NodeName: new(lab.NodeName),
		Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
	}}
	return sl
}
