//go:build e2e

package flood

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// frontend and endpoint are where a Service is, and who serves it.
var (
	calmFrontend   = netip.MustParseAddrPort("10.96.0.11:80")
	stickyFrontend = netip.MustParseAddrPort("10.96.0.12:80")
)

func service(namespace, name string, at netip.AddrPort, sticky bool) *corev1.Service {
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: at.Addr().String(), ClusterIPs: []string{at.Addr().String()},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: int32(at.Port())},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: int32(at.Port())},
			},
		},
	}
	if sticky {
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](10800)}}
	}
	return o
}

func slice(namespace, service string, endpoints ...netip.AddrPort) *discoveryv1.EndpointSlice {
	o := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	port := int32(8080)
	for _, e := range endpoints {
		port = int32(e.Port())
		o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{e.Addr().String()}, NodeName: ptr.To(lab.RemoteNodeName)})
	}
	o.Ports = []discoveryv1.EndpointPort{
		{Name: ptr.To("tcp"), Protocol: ptr.To(corev1.ProtocolTCP), Port: &port},
		{Name: ptr.To("udp"), Protocol: ptr.To(corev1.ProtocolUDP), Port: &port},
	}
	return o
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: lab.NodeName},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: lab.MustText(lab.IPv4, "NODE")}}},
	}
}

// crowd are Services of a tenant, each with one endpoint, which depends on the round.
func crowd(n, round int) (list []object) {
	for i := range n {
		name := fmt.Sprintf("service-%05d", i)
		if round == 0 {
			at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}), 80)
			list = append(list, service("tenant", name, at, false))
		}
		end := netip.AddrFrom4([4]byte{10, byte(20 + round%200), byte(i >> 8), byte(i)})
		list = append(list, slice("tenant", name, netip.AddrPortFrom(end, 8080)))
	}
	return list
}
