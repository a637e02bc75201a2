package convert

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// hintsWindow is the number of earlier hints in a slice that are compared before a new value is made. Hints by zone
// have a handful of values in a slice. Hints by node differ for each endpoint, and a comparison with all of them would
// take quadratic time.
const hintsWindow = 8

// Slice converts an EndpointSlice. It returns nil if no Service of this proxy can use the slice.
func (c *Converter) Slice(o *discoveryv1.EndpointSlice) (*state.Slice, []state.Problem) {
	f := NewFindings(KindSlice, NameOf(&o.ObjectMeta))
	if ignored(o) || !f.named(&o.ObjectMeta) {
		return nil, f.Problems()
	}
	family, ok := f.addressType(o.AddressType)
	if !ok {
		return nil, f.Problems()
	}
	service := o.Labels[discoveryv1.LabelServiceName]
	if service == "" {
		f.Add("metadata.labels["+discoveryv1.LabelServiceName+"]", "missing: the slice belongs to no Service")
		return nil, f.Problems()
	}
	if !isLabel(service) {
		f.Add("metadata.labels["+discoveryv1.LabelServiceName+"]", "%s is not a DNS label: the slice belongs to no Service",
			state.Quote(service))
		return nil, f.Problems()
	}
	namespace := c.strings.share(o.Namespace)
	sl := &state.Slice{
		Name:      c.NameOf(o),
		Service:   state.Name{Namespace: namespace, Name: shareName(o.Name, service)},
		Family:    family,
		Ports:     c.slicePorts(&f, o.Ports),
		Endpoints: c.endpoints(&f, family, o.Endpoints),
		Trigger:   f.trigger(o.Annotations),
		Weight:    state.DefaultWeight,
	}
	annotate(c, &f, o.Annotations, sl, func(a *state.Annotation) func(*state.Slice, string) error { return a.Slice })
	return sl, f.Problems()
}

// ignored reports whether a slice is for DNS only (headless) or not for proxies at all (FQDN). The label with the name
// of another proxy counts only on Services: the controller copies labels from Services to slices, and a label that was
// removed from the Service stays on the slice for a while.
func ignored(o *discoveryv1.EndpointSlice) bool {
	_, headless := o.Labels[corev1.IsHeadlessService]
	return headless || o.AddressType == discoveryv1.AddressTypeFQDN
}

func (f *findings) addressType(t discoveryv1.AddressType) (state.Family, bool) {
	switch t {
	case discoveryv1.AddressTypeIPv4:
		return state.IPv4, true
	case discoveryv1.AddressTypeIPv6:
		return state.IPv6, true
	}
	f.Add("addressType", "%s is not one of IPv4, IPv6 and FQDN: the slice is ignored", state.Quote(string(t)))
	return 0, false
}

// shareName lets the name of the Service share memory with the name of the slice, which begins with it.
func shareName(slice, service string) string {
	if strings.HasPrefix(slice, service) {
		return slice[:len(service)]
	}
	return service
}

func (c *Converter) slicePorts(f *findings, ports []discoveryv1.EndpointPort) []state.SlicePort {
	ports = readable(f, "ports", ports)
	good := make([]state.SlicePort, 0, len(ports))
	for i := range ports {
		p := &ports[i]
		if p.Port == nil {
			continue // means "all ports", which Services do not use
		}
		field := fieldPath{list: "ports", index: i}
		protocol, okProtocol := f.protocol(field.dot("protocol"), ptr.Deref(p.Protocol, ""))
		number, okNumber := f.port(field.dot("port"), *p.Port)
		okName := f.portNamed(field.dot("name"), ptr.Deref(p.Name, ""))
		if okProtocol && okNumber && okName {
			good = append(good, state.SlicePort{Name: c.portName(i, ptr.Deref(p.Name, "")), Protocol: protocol, Port: number})
		}
	}
	return good
}

func (c *Converter) endpoints(f *findings, family state.Family, list []discoveryv1.Endpoint) []state.Endpoint {
	list = readable(f, "endpoints", list)
	good := make([]state.Endpoint, 0, len(list))
	var hints []*state.Hints
	for i := range list {
		e := &list[i]
		addr, ok := f.endpointAddr(i, family, e.Addresses)
		if !ok {
			continue
		}
		var h *state.Hints
		h, hints = c.hints(e.Hints, hints)
		good = append(good, state.Endpoint{
			Addr: addr,
			// Conditions that are not set mean ready, serving and not terminating. So says the API, and so does
			// upstream 1.37.
			Ready:       ptr.Deref(e.Conditions.Ready, true),
			Serving:     ptr.Deref(e.Conditions.Serving, true),
			Terminating: ptr.Deref(e.Conditions.Terminating, false),
			Node:        c.strings.share(ptr.Deref(e.NodeName, "")),
			Zone:        c.strings.share(ptr.Deref(e.Zone, "")),
			Hints:       h,
		})
	}
	return good
}

// endpointAddr parses the first address. The API gives the others no meaning.
func (f *findings) endpointAddr(i int, family state.Family, addresses []string) (addr netip.Addr, ok bool) {
	if len(addresses) == 0 {
		f.Add(Indexed("endpoints", i)+".addresses", "empty: the endpoint is ignored")
		return netip.Addr{}, false
	}
	addr, reason := ParseAddr(addresses[0])
	if reason == "" && state.FamilyOf(addr) != family {
		reason = state.Quote(addresses[0]) + " is not an " + family.Version() + " address, as addressType says"
	}
	if reason != "" {
		f.Add(Indexed("endpoints", i)+".addresses[0]", "%s", reason)
		return netip.Addr{}, false
	}
	return addr, true
}

// hints converts topology hints. Equal hints of one slice share a value.
func (c *Converter) hints(h *discoveryv1.EndpointHints, earlier []*state.Hints) (*state.Hints, []*state.Hints) {
	if h == nil || len(h.ForZones)+len(h.ForNodes) == 0 {
		return nil, earlier
	}
	for _, e := range earlier {
		if sameHints(e, h) {
			return e, earlier
		}
	}
	made := &state.Hints{}
	for _, z := range h.ForZones {
		made.Zones = append(made.Zones, c.strings.share(z.Name))
	}
	for _, n := range h.ForNodes {
		made.Nodes = append(made.Nodes, c.strings.share(n.Name))
	}
	if len(earlier) < hintsWindow {
		earlier = append(earlier, made)
	}
	return made, earlier
}

func sameHints(a *state.Hints, b *discoveryv1.EndpointHints) bool {
	return slices.EqualFunc(a.Zones, b.ForZones, func(name string, zone discoveryv1.ForZone) bool { return name == zone.Name }) &&
		slices.EqualFunc(a.Nodes, b.ForNodes, func(name string, node discoveryv1.ForNode) bool { return name == node.Name })
}

// trigger returns the time of the change for which the controller wrote this slice.
func (f *findings) trigger(annotations map[string]string) time.Time {
	value, ok := annotations[corev1.EndpointsLastChangeTriggerTime]
	if !ok {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, value)
	if err != nil {
		f.Add(state.AnnotationField(corev1.EndpointsLastChangeTriggerTime), "%s is not a time (RFC 3339)", state.Quote(value))
		return time.Time{}
	}
	return at.UTC()
}
