package objects

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// OneOf picks one of several values.
func OneOf[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// randomTarget is the port of pods at which only random Services have endpoints.
func randomTarget() uint16 { return lab.Ports()[3] }

// RandomMode says how a Service picks an endpoint.
func RandomMode(r *rand.Rand, s *corev1.Service) {
	if r.IntN(2) == 0 {
		Schedule(s, OneOf(r, "random", "rr", "wrr", "lc", "wlc", "sh", "mh", "dh", "sed", "nq", "fo", "ovf", "lblc", "lblcr", "twos"))
	}
	if r.IntN(3) == 0 {
		Stick(s, OneOf[int32](r, 1, 60, 600, 10800))
	}
}

// RandomService is a load balancer with random features. Addresses are few, so Services take them from each other.
func RandomService(r *rand.Rand, namespace, name string, clusterIPs ...string) *corev1.Service {
	s := Service(namespace, name, clusterIPs...)
	RandomMode(r, s)
	if r.IntN(8) == 0 {
		Schedule(s, OneOf(r, "nonsense", ""))
		s.Annotations["verdict-proxy.github.io/scheduler-flags"] = OneOf(r, "sh-port", "mh-port", ",,,")
	}
	spec := &s.Spec
	spec.PublishNotReadyAddresses = r.IntN(8) == 0
	spec.InternalTrafficPolicy = new(OneOf(r, corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal))
	spec.ExternalTrafficPolicy = OneOf(r, corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	for i := range 1 + r.IntN(3) {
		spec.Ports = append(spec.Ports, Port(fmt.Sprintf("p%d", i), randomProtocol(r), int32(80+10*i+r.IntN(2))))
	}
	if r.IntN(4) == 0 {
		spec.ExternalIPs = []string{fmt.Sprintf("198.51.100.%d", 100+r.IntN(20)), fmt.Sprintf("2001:db8:198::%x", 0x100+r.IntN(20))}
	}
	if r.IntN(2) == 0 {
		AddIngress(s, fmt.Sprintf("203.0.113.%d", 100+r.IntN(20)), fmt.Sprintf("2001:db8:203::%x", 0x100+r.IntN(20)))
		spec.LoadBalancerSourceRanges = OneOf(r, nil,
			[]string{"192.168.7.0/24"}, []string{"192.168.7.11/32", "fd00:7::/64", "192.168.0.0/16"}, []string{"0.0.0.0/0", "::/0"},
			[]string{"10.0.0.0/9", "10.128.0.0/9", "10.64.0.0/10"})
	}
	return s
}

func randomProtocol(r *rand.Rand) corev1.Protocol {
	return OneOf(r, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP)
}

// RandomSlice is a slice of a random Service. Its endpoints are pod b and addresses of pod c.
func RandomSlice(r *rand.Rand, namespace, service string, f lab.Family, number int) *discoveryv1.EndpointSlice {
	sl := Slice(namespace, service, f, number)
	if r.IntN(4) == 0 {
		sl.Annotations = map[string]string{"verdict-proxy.github.io/weight": OneOf(r, "0", "1", "3", "100", "65535", "-1", "many")}
	}
	for i := range 3 {
		sl.Ports = append(sl.Ports, SlicePort(fmt.Sprintf("p%d", i), randomProtocol(r), randomTarget()))
	}
	used := map[netip.Addr]bool{}
	for range r.IntN(OneOf(r, 4, 12, 60)) {
		addr, node := lab.PodAddress(f, "b"), lab.NodeName
		if r.IntN(3) > 0 {
			addr = lab.Member(f, "MANY", 1+r.IntN(100))
			node = lab.RemoteNodeName
		}
		if !used[addr] {
			used[addr] = true
			sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{addr.String()}, NodeName: &node, Zone: new("z-" + node), Conditions: randomConditions(r),
			})
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
