package convert

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// The bounds and the default that the API server gives sessionAffinityConfig.clientIP.timeoutSeconds.
const (
	maxAffinity     = 86400
	defaultAffinity = corev1.DefaultClientIPServiceAffinitySeconds
)

// Service converts a Service. It returns nil if this proxy does not serve the Service.
func (c *Converter) Service(o *corev1.Service) (*state.Service, []state.Problem) {
	f := NewFindings(KindService, NameOf(&o.ObjectMeta))
	if !served(o) || !f.named(&o.ObjectMeta) {
		return nil, f.Problems()
	}
	svc := &state.Service{
		Name:            c.NameOf(o),
		Created:         o.CreationTimestamp.UTC(), // without a pointer to a time zone, so that equal times compare as equal
		UID:             state.ParseUID(string(o.UID)),
		ClusterIPs:      f.clusterIPs(o),
		ExternalIPs:     parsed(&f, "spec.externalIPs", o.Spec.ExternalIPs, parseExternalIP),
		LoadBalancerIPs: f.loadBalancerIPs(o.Status.LoadBalancer.Ingress),
		Ports:           c.servicePorts(&f, o.Spec.Ports),
		InternalLocal:   f.internalLocal(o),
		ExternalLocal:   f.externalLocal(o),
		Affinity:        f.affinity(o),
	}
	annotate(c, &f, o.Annotations, svc, func(a *state.Annotation) func(*state.Service, string) error { return a.Service })
	f.sourceRanges(o, svc)
	if o.Spec.Type == corev1.ServiceTypeLoadBalancer && svc.ExternalLocal {
		svc.HealthCheckNodePort = f.optionalPort(fieldPath{list: "spec.healthCheckNodePort", index: -1}, o.Spec.HealthCheckNodePort)
	}
	return svc, f.Problems()
}

// served reports whether this proxy serves a Service.
func served(o *corev1.Service) bool {
	if _, other := o.Labels[LabelProxyName]; other {
		return false
	}
	// An ExternalName Service may still have the cluster IP from before its type changed.
	return o.Spec.Type != corev1.ServiceTypeExternalName && !headless(o)
}

func headless(o *corev1.Service) bool {
	ip := PrimaryIP(o)
	return ip == "" || ip == corev1.ClusterIPNone
}

// PrimaryIP returns spec.clusterIP. A manifest may have only the list.
func PrimaryIP(o *corev1.Service) string {
	if o.Spec.ClusterIP == "" && len(o.Spec.ClusterIPs) > 0 {
		return o.Spec.ClusterIPs[0]
	}
	return o.Spec.ClusterIP
}

// clusterIPs prefers the list. Manifests, and objects from before dual stack, may have only the single field.
func (f *findings) clusterIPs(o *corev1.Service) []netip.Addr {
	if len(o.Spec.ClusterIPs) > 0 {
		return parsed(f, "spec.clusterIPs", o.Spec.ClusterIPs, ParseAddr)
	}
	addr, reason := ParseAddr(o.Spec.ClusterIP)
	if reason != "" {
		f.Add("spec.clusterIP", "%s", reason)
		return nil
	}
	return []netip.Addr{addr}
}

// parseExternalIP parses an address that packets to a Service may have from elsewhere. The API server accepts no other
// external IP, except for the broadcast address. The owner of a Service would take traffic that stays on this node or link:
// 169.254.169.254 has the credentials of the machine in many clouds.
func parseExternalIP(s string) (addr netip.Addr, reason string) {
	addr, reason = ParseAddr(s)
	switch {
	case reason != "":
		return addr, reason
	case addr.IsLoopback():
		return addr, state.Quote(s) + " is a loopback address: it is not served"
	case addr.IsLinkLocalUnicast():
		return addr, state.Quote(s) + " is a link-local address: it is not served"
	case addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return addr, state.Quote(s) + " is the broadcast address: it is not served"
	}
	return addr, ""
}

// loadBalancerIPs returns the addresses with ipMode VIP or without ipMode. With ipMode Proxy, traffic must go through
// the load balancer itself. A host name cannot be matched with packets.
func (f *findings) loadBalancerIPs(ingress []corev1.LoadBalancerIngress) []netip.Addr {
	var good distinct[netip.Addr]
	for i, in := range readable(f, "status.loadBalancer.ingress", ingress) {
		if in.IP == "" || (in.IPMode != nil && *in.IPMode == corev1.LoadBalancerIPModeProxy) {
			continue
		}
		addr, reason := ParseAddr(in.IP)
		if reason != "" {
			f.Add(Indexed("status.loadBalancer.ingress", i)+".ip", "%s", reason)
			continue
		}
		good.add(addr)
	}
	return good.list
}

// sourceRanges fails closed. If the Service has ranges, but none of them is valid, an empty list would open the load
// balancer to everyone. Its addresses stay, because whatever else listens there must not get the clients.
func (f *findings) sourceRanges(o *corev1.Service, svc *state.Service) {
	const field = "spec.loadBalancerSourceRanges"
	svc.SourceRanges = parsed(f, field, o.Spec.LoadBalancerSourceRanges, parsePrefix)
	if len(o.Spec.LoadBalancerSourceRanges) == 0 || len(svc.SourceRanges) > 0 || len(svc.LoadBalancerIPs) == 0 {
		return
	}
	svc.NoSource = true
	f.Add(field, "no range is valid: packets to the load balancer addresses are dropped, because otherwise these would be open to everyone")
}

func (c *Converter) servicePorts(f *findings, ports []corev1.ServicePort) []state.ServicePort {
	ports = readable(f, "spec.ports", ports)
	good := make([]state.ServicePort, 0, len(ports))
	earlier := portsInUse{several: len(ports) > 1, nodePorts: inUse[uint16]{}}
	if earlier.several {
		earlier.numbers, earlier.names = make(inUse[uint16], len(ports)), make(inUse[string], len(ports))
	}
	for i := range ports {
		if port, ok := c.servicePort(f, fieldPath{list: "spec.ports", index: i}, &ports[i], &earlier); ok {
			good = append(good, port)
		}
	}
	return good
}

// portsInUse is what the ports of a Service use so far.
type portsInUse struct {
	several            bool // the Service has more than one port; otherwise, no port is earlier
	numbers, nodePorts inUse[uint16]
	names              inUse[string]
}

// inUse has the protocols of each value.
type inUse[T comparable] map[T]uint8

// bit is another one for each protocol.
func bit(p state.Protocol) uint8 { return 1 << (p % 8) }

func (u inUse[T]) has(v T, p state.Protocol) bool { return u[v]&bit(p) != 0 }

// servicePort converts one port. earlier is what the ports that precede it in the Service use.
func (c *Converter) servicePort(
	f *findings, field fieldPath, p *corev1.ServicePort, earlier *portsInUse,
) (state.ServicePort, bool) {
	protocol, okProtocol := f.protocol(field.dot("protocol"), p.Protocol)
	number, okNumber := f.port(field.dot("port"), p.Port)
	okName := f.portNamed(field.dot("name"), p.Name)
	if !okProtocol || !okNumber || !okName {
		return state.ServicePort{}, false
	}
	port := state.ServicePort{Name: c.portName(field.index, p.Name), Protocol: protocol, Port: number}
	switch {
	case earlier.numbers.has(number, protocol):
		f.Add(field.dot("port").String(), "%s port %d occurs twice: the first one is used", protocol, number)
		return state.ServicePort{}, false
	case earlier.names.has(port.Name, protocol):
		// Name and protocol connect a port with its endpoints, so they must be unique.
		f.Add(field.dot("name").String(), "%s port name %s occurs twice: the first one is used", protocol, state.Quote(port.Name))
		return state.ServicePort{}, false
	}
	f.apart(field.dot("name"), port.Name, earlier)
	if earlier.several {
		earlier.numbers[number] |= bit(protocol)
		earlier.names[port.Name] |= bit(protocol)
	}
	port.NodePort = f.nodePort(field.dot("nodePort"), protocol, p.NodePort, earlier)
	return port, true
}

// apart reports a name that an API server does not accept, although its protocol still tells the port apart.
func (f *findings) apart(field fieldPath, name string, earlier *portsInUse) {
	switch {
	case earlier.several && name == "":
		f.Add(field.String(), "missing: an API server accepts a port without a name only as the only port; the port is served")
	case earlier.names[name] != 0:
		f.Add(field.String(), "%s occurs twice: an API server accepts a name only once, whatever the protocol; the port is served", state.Quote(name))
	}
}

// nodePort returns 0 for a node port that is invalid or that an earlier port of the Service has.
func (f *findings) nodePort(field fieldPath, protocol state.Protocol, number int32, earlier *portsInUse) uint16 {
	port := f.optionalPort(field, number)
	if port == 0 {
		return 0
	}
	if earlier.nodePorts.has(port, protocol) {
		f.Add(field.String(), "%s node port %d occurs twice: the first one is used", protocol, port)
		return 0
	}
	earlier.nodePorts[port] |= bit(protocol)
	return port
}

func (f *findings) internalLocal(o *corev1.Service) bool {
	policy := o.Spec.InternalTrafficPolicy
	if policy == nil {
		return false
	}
	switch *policy {
	case "", corev1.ServiceInternalTrafficPolicyCluster:
		return false
	case corev1.ServiceInternalTrafficPolicyLocal:
		return true
	}
	f.Add("spec.internalTrafficPolicy", "%s is not Cluster or Local: Cluster is used", state.Quote(string(*policy)))
	return false
}

// externalLocal ignores the policy where the API ignores it: on a Service without frontends for traffic from outside.
func (f *findings) externalLocal(o *corev1.Service) bool {
	switch o.Spec.ExternalTrafficPolicy {
	case "", corev1.ServiceExternalTrafficPolicyCluster:
		return false
	case corev1.ServiceExternalTrafficPolicyLocal:
		return o.Spec.Type == corev1.ServiceTypeLoadBalancer || o.Spec.Type == corev1.ServiceTypeNodePort ||
			len(o.Spec.ExternalIPs) > 0
	}
	f.Add("spec.externalTrafficPolicy", "%s is not Cluster or Local: Cluster is used", state.Quote(string(o.Spec.ExternalTrafficPolicy)))
	return false
}

func (f *findings) affinity(o *corev1.Service) time.Duration {
	switch o.Spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		return 0
	case corev1.ServiceAffinityClientIP:
		return time.Duration(f.affinitySeconds(o.Spec.SessionAffinityConfig)) * time.Second
	}
	f.Add("spec.sessionAffinity", "%s is not ClientIP or None: None is used", state.Quote(string(o.Spec.SessionAffinity)))
	return 0
}

func (f *findings) affinitySeconds(config *corev1.SessionAffinityConfig) int32 {
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return defaultAffinity
	}
	seconds := *config.ClientIP.TimeoutSeconds
	if seconds < 1 || seconds > maxAffinity {
		f.Add("spec.sessionAffinityConfig.clientIP.timeoutSeconds",
			"%d is outside 1 to %d: the default %d is used", seconds, maxAffinity, defaultAffinity)
		return defaultAffinity
	}
	return seconds
}
