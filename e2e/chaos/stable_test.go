//go:build e2e

package chaos

import (
	"cmp"
	"maps"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/objects"
)

// stable is a Service that nobody touches while the rounds run. The pods a and c answer for it, one on the node and one
// on another. Each Service has a port of its own at the pods, so a wrong answer shows.
type stable struct {
	name     string
	vip      string // names of the address book
	lb, ext  string
	target   uint16
	nodePort int32
	port     string            // its name; "": http
	udp      bool              // also serve UDP, at port 53 and at the next node port
	sticky   bool              // with session affinity
	local    bool              // externalTrafficPolicy Local
	frail    map[string]string // annotations about endpoint health: pod b answers as well, and faults make it fail
}

const stableNamespace = "stable"

// Further ports of pods, of the Services with a frail endpoint. A check asks checkPort.
const refusedTarget, checkedTarget, checkPort = 8084, 8085, 8086

func stableServices() []stable {
	ports := lab.Ports()
	return []stable{ // the names of sticky are of full length
		{name: "web", vip: "VIP1", lb: "LB1", ext: "EXT1", target: ports[0], nodePort: 30080, udp: true},
		{name: objects.Full("sticky"), port: objects.Full("http"), vip: "VIP2", target: ports[1], nodePort: 30090, sticky: true},
		{name: "local", vip: "VIP3", lb: "LB2", target: ports[2], nodePort: 30100, local: true},
		{name: "refused", vip: "VIP4", target: refusedTarget, nodePort: 30110, frail: map[string]string{
			"verdict-proxy.github.io/outlier-detection": "eject,refusals",
		}},
		{name: "checked", vip: "VIP5", lb: "LB3", target: checkedTarget, nodePort: 30120, frail: map[string]string{
			"verdict-proxy.github.io/health-check": "tcp interval=1s timeout=500ms rise=1 fall=1 port=8086",
		}},
	}
}

// pods are the endpoints.
func (s *stable) pods() []string {
	if s.frail != nil {
		return []string{"a", "b", "c"}
	}
	return []string{"a", "c"}
}

func (s *stable) portName() string { return cmp.Or(s.port, "http") }

func (s *stable) service() *corev1.Service {
	svc := objects.Service(stableNamespace, s.name, lab.Both(s.vip)...)
	maps.Copy(svc.Annotations, s.frail)
	spec := &svc.Spec
	spec.Type, spec.IPFamilyPolicy = corev1.ServiceTypeNodePort, new(corev1.IPFamilyPolicyRequireDualStack)
	spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	add := func(name string, p corev1.Protocol, number, nodePort int32) {
		port := objects.Port(name, p, number)
		port.NodePort, port.TargetPort = nodePort, intstr.FromInt32(int32(s.target))
		spec.Ports = append(spec.Ports, port)
	}
	add(s.portName(), corev1.ProtocolTCP, 80, s.nodePort)
	if s.udp {
		add("dns", corev1.ProtocolUDP, 53, s.nodePort+1)
	}
	if s.sticky {
		spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if s.local {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if s.ext != "" {
		spec.ExternalIPs = lab.Both(s.ext)
	}
	if s.lb != "" {
		spec.Type = corev1.ServiceTypeLoadBalancer
		objects.AddIngress(svc, lab.Both(s.lb)...)
	}
	return svc
}

func (s *stable) slice(f lab.Family, pods ...string) *discoveryv1.EndpointSlice {
	sl := objects.Slice(stableNamespace, s.name, f, 0, objects.SlicePort(s.portName(), corev1.ProtocolTCP, s.target))
	if s.udp {
		sl.Ports = append(sl.Ports, objects.SlicePort("dns", corev1.ProtocolUDP, s.target))
	}
	objects.AddPods(sl, f, pods...)
	return sl
}

// target is a frontend of an untouched Service, as one client sees it.
type target struct {
	service  string
	protocol lab.Protocol
	to       netip.AddrPort
	want     map[string]bool // who may answer
	sticky   bool
	frail    bool // an endpoint may fail, so a connection may be late, and open ones may end
}

// targets lists what a client at a place asks.
func targets(f lab.Family, place string) (list []target) {
	for _, s := range stableServices() {
		for _, frontend := range []struct {
			name     string
			tcp, udp uint16
			external bool
		}{
			{s.vip, 80, 53, false}, {s.lb, 80, 53, true}, {s.ext, 80, 53, true}, {"NODE", uint16(s.nodePort), uint16(s.nodePort + 1), true},
		} {
			if frontend.name == "" {
				continue
			}
			at := lab.Address(f, frontend.name)
			t := target{
				service: s.name, protocol: lab.TCP, to: netip.AddrPortFrom(at, frontend.tcp),
				want: s.answers(frontend.external && place == lab.Outside), sticky: s.sticky, frail: s.frail != nil,
			}
			list = append(list, t)
			if s.udp {
				t.protocol, t.to = lab.UDP, netip.AddrPortFrom(at, frontend.udp)
				list = append(list, t)
			}
		}
	}
	return list
}

// answers are the names of the endpoints that may answer. With policy Local, a client outside reaches only the one on
// the node.
func (s *stable) answers(fromOutside bool) map[string]bool {
	want := map[string]bool{}
	for _, pod := range s.pods() {
		if !s.local || !fromOutside || lab.NodeOf(pod) == lab.NodeName {
			want[lab.Answer{Pod: pod, Port: s.target}.Name()] = true
		}
	}
	return want
}
