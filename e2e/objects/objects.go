package objects

import (
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Full makes the name of an object or port as long as it may be.
func Full(name string) string { return name + "-" + strings.Repeat("x", 62-len(name)) }

// Service makes a load balancer without ports. Its family policy is that of its cluster IPs; without any, the API server
// chooses them.
func Service(namespace, name string, clusterIPs ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{}}}
	s.APIVersion, s.Kind = "v1", "Service"
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	if len(clusterIPs) > 0 {
		s.Spec.ClusterIP, s.Spec.ClusterIPs = clusterIPs[0], clusterIPs
	}
	return s
}

// AddIngress gives a Service addresses of a load balancer.
func AddIngress(s *corev1.Service, ips ...string) {
	for _, ip := range ips {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
	}
}

// Stick gives a Service session affinity.
func Stick(s *corev1.Service, seconds int32) {
	s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
}

// Schedule gives a Service a scheduler.
func Schedule(s *corev1.Service, scheduler string) {
	s.Annotations["verdict-proxy.github.io/scheduler"] = scheduler
}

// Port is a port of a Service.
func Port(name string, p corev1.Protocol, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: p, Port: number}
}

// Slice makes an EndpointSlice without endpoints. A Service may have several of a family; their numbers differ.
func Slice(namespace, service string, f lab.Family, number int, ports ...discoveryv1.EndpointPort) *discoveryv1.EndpointSlice {
	sl := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressType(f.String()), Ports: ports}
	sl.APIVersion, sl.Kind = "discovery.k8s.io/v1", "EndpointSlice"
	sl.Namespace, sl.Name = namespace, fmt.Sprintf("%s-%d-%d", service, f, number)
	sl.Labels = map[string]string{discoveryv1.LabelServiceName: service}
	return sl
}

// SlicePort is a port of an EndpointSlice.
func SlicePort(name string, p corev1.Protocol, number uint16) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Protocol: &p, Port: new(int32(number))}
}

// AddPods gives an EndpointSlice pods of the lab as ready endpoints.
func AddPods(sl *discoveryv1.EndpointSlice, f lab.Family, pods ...string) {
	for _, pod := range pods {
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{lab.PodAddress(f, pod).String()}, NodeName: new(lab.NodeOf(pod)),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
}

// Node makes a Node. Its address and its range of pods are names of the address book.
func Node(name, address, pods string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: "z-" + name}}}
	n.APIVersion, n.Kind = "v1", "Node"
	n.Spec.PodCIDRs = lab.Both(pods)
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	for _, ip := range lab.Both(address) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip})
	}
	return n
}

// Manifest is the text of objects, as documents of a file.
func Manifest(objects ...any) string {
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
