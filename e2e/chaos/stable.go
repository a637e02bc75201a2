package main

import (
	"cmp"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// stable is a Service that nobody touches while the rounds run. The pods a and c answer for it, one on the node and one
// on another. Each Service has a port of its own at the pods, so a wrong answer shows.
type stable struct {
	name     string
	vip      string // names of the address book
	lb, ext  string
	target   uint16
	nodePort int32
	port     string // its name; "": http
	udp      bool   // also serve UDP, at port 53 and at the next node port
	sticky   bool
	local    bool
}

const stableNamespace = "stable"

func stableServices() []stable {
	ports := lab.Ports()
	return []stable{ // the names of sticky are of full length
		{name: "web", vip: "VIP1", lb: "LB1", ext: "EXT1", target: ports[0], nodePort: 30080, udp: true},
		{name: full("sticky"), port: full("http"), vip: "VIP2", target: ports[1], nodePort: 30090, sticky: true},
		{name: "local", vip: "VIP3", lb: "LB2", target: ports[2], nodePort: 30100, local: true},
	}
}

func (s *stable) portName() string { return cmp.Or(s.port, "http") }

// full makes the name of an object or port as long as it may be.
func full(name string) string { return name + "-" + strings.Repeat("x", 62-len(name)) }

// churnTarget is the port of pods at which only Services in churn have endpoints.
func churnTarget() uint16 { return lab.Ports()[3] }

// texts lists an address in both families.
func texts(name string) (list []string) {
	for _, f := range lab.Families() {
		list = append(list, named(f, name).String())
	}
	return list
}

// named looks up an address whose name stands in this package.
func named(f lab.Family, name string) netip.Addr {
	a, err := lab.Lookup(f, name)
	if err != nil {
		panic(err) // the name stands in this package
	}
	return a
}

func (s *stable) service() *corev1.Service {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: stableNamespace, Name: s.name}}
	svc.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeNodePort, ClusterIP: texts(s.vip)[0], ClusterIPs: texts(s.vip),
		IPFamilies:     []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
		IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
		Ports:          []corev1.ServicePort{{Name: s.portName(), Protocol: corev1.ProtocolTCP, Port: 80, NodePort: s.nodePort}},
	}
	svc.Spec.Ports[0].TargetPort = intstr.FromInt32(int32(s.target))
	if s.udp {
		svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{
			Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53, NodePort: s.nodePort + 1, TargetPort: intstr.FromInt32(int32(s.target)),
		})
	}
	if s.sticky {
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if s.local {
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if s.ext != "" {
		svc.Spec.ExternalIPs = texts(s.ext)
	}
	if s.lb != "" {
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
		for _, ip := range texts(s.lb) {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: ip})
		}
	}
	return svc
}

func (s *stable) slice(f lab.Family) *discoveryv1.EndpointSlice {
	sl := emptySlice(stableNamespace, s.name, f, 0)
	sl.Ports = []discoveryv1.EndpointPort{slicePort(s.portName(), corev1.ProtocolTCP, s.target)}
	if s.udp {
		sl.Ports = append(sl.Ports, slicePort("dns", corev1.ProtocolUDP, s.target))
	}
	for _, pod := range []string{"a", "c"} {
		sl.Endpoints = append(sl.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{lab.PodAddress(f, pod).String()}, NodeName: new(lab.NodeOf(pod)),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	return sl
}

func emptySlice(namespace, service string, f lab.Family, number int) *discoveryv1.EndpointSlice {
	name := service + "-" + map[lab.Family]string{lab.IPv4: "v4", lab.IPv6: "v6"}[f] + string(rune('a'+number))
	return &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressType(f.String()),
	}
}

func slicePort(name string, p corev1.Protocol, port uint16) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Protocol: &p, Port: new(int32(port))}
}

// target is a frontend of an untouched Service, as one client sees it.
type target struct {
	service  string
	protocol lab.Protocol
	to       netip.AddrPort
	want     map[string]bool // who may answer
	sticky   bool
}

// targets lists what a client at a place asks.
func targets(f lab.Family, place string) (list []target) {
	for _, s := range stableServices() {
		for _, frontend := range []struct {
			name     string
			port     uint16
			external bool
		}{
			{s.vip, 80, false}, {s.lb, 80, true}, {s.ext, 80, true}, {"NODE", uint16(s.nodePort), true},
		} {
			if frontend.name == "" {
				continue
			}
			t := target{
				service: s.name, protocol: lab.TCP, to: netip.AddrPortFrom(named(f, frontend.name), frontend.port),
				want: s.answers(frontend.external && place == lab.Outside), sticky: s.sticky,
			}
			list = append(list, t)
			if s.udp {
				port := uint16(53)
				if frontend.name == "NODE" {
					port = frontend.port + 1
				}
				t.protocol, t.to = lab.UDP, netip.AddrPortFrom(t.to.Addr(), port)
				list = append(list, t)
			}
		}
	}
	return list
}

// answers are the names of the endpoints that may answer. With policy Local, a client outside reaches only the one on
// the node.
func (s *stable) answers(fromOutside bool) map[string]bool {
	want := map[string]bool{lab.Answer{Pod: "a", Port: s.target}.Name(): true}
	if !s.local || !fromOutside {
		want[lab.Answer{Pod: "c", Port: s.target}.Name()] = true
	}
	return want
}
