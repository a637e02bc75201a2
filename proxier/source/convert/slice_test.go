package convert

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func wantSlice(changes ...func(*state.Slice)) *state.Slice {
	s := &state.Slice{
		Name:      state.Name{Namespace: "shop", Name: "web-x7k2p"},
		Service:   state.Name{Namespace: "shop", Name: "web"},
		Family:    state.IPv4,
		Ports:     []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}},
		Endpoints: []state.Endpoint{endpoint("10.0.0.1")},
		Weight:    1,
	}
	for _, c := range changes {
		c(s)
	}
	return s
}

// endpoint returns a ready endpoint.
func endpoint(addr string, changes ...func(*state.Endpoint)) state.Endpoint {
	e := state.Endpoint{Addr: sourcetest.Addrs(addr)[0], Ready: true, Serving: true}
	for _, c := range changes {
		c(&e)
	}
	return e
}

// conditions returns two functions: one sets the conditions of the API object, the other sets the expected endpoint.
func conditions(ready, serving, terminating *bool, want state.Endpoint) (func(*discoveryv1.EndpointSlice), func(*state.Slice)) {
	return func(o *discoveryv1.EndpointSlice) {
			o.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}
		}, func(s *state.Slice) {
			want.Addr = s.Endpoints[0].Addr
			s.Endpoints[0] = want
		}
}

func TestSliceConditions(t *testing.T) {
	yes, no := new(true), new(false)
	for _, tt := range []struct {
		name                        string
		ready, serving, terminating *bool
		want                        state.Endpoint
	}{
		{"unset", nil, nil, nil, state.Endpoint{Ready: true, Serving: true}},
		{"ready", yes, yes, no, state.Endpoint{Ready: true, Serving: true}},
		{"not ready", no, no, no, state.Endpoint{}},
		{"terminating and serving", no, yes, yes, state.Endpoint{Serving: true, Terminating: true}},
		{"terminating, no longer serving", no, no, yes, state.Endpoint{Terminating: true}},
		{"published though not ready", yes, no, no, state.Endpoint{Ready: true}},
		// According to the API, nil means true, whatever ready is. Upstream does the same.
		{"serving unset", no, nil, yes, state.Endpoint{Serving: true, Terminating: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			api, want := conditions(tt.ready, tt.serving, tt.terminating, tt.want)
			checkSlice(t, api, want, nil)
		})
	}
}

func checkSlice(t *testing.T, api func(*discoveryv1.EndpointSlice), want func(*state.Slice), problems []problem) {
	t.Helper()
	got, found := New().Slice(sourcetest.Slice(api))
	if diff := cmp.Diff(wantSlice(want), got, sourcetest.CompareValues); diff != "" {
		t.Errorf("slice (-want +got):\n%s", diff)
	}
	checkProblems(t, KindSlice, wantSlice().Name, problems, found)
}

// TestSlice has one row for each valid value of a field.
func TestSlice(t *testing.T) {
	for _, tt := range []struct {
		name string
		api  func(*discoveryv1.EndpointSlice)
		want func(*state.Slice)
	}{
		{"plain", func(*discoveryv1.EndpointSlice) {}, func(*state.Slice) {}},
		{"IPv6", func(o *discoveryv1.EndpointSlice) {
			o.AddressType, o.Endpoints[0].Addresses = discoveryv1.AddressTypeIPv6, []string{"FD00:0::1"}
		}, func(s *state.Slice) { s.Family, s.Endpoints[0].Addr = state.IPv6, sourcetest.Addrs("fd00::1")[0] }},
		{"only the first address", func(o *discoveryv1.EndpointSlice) {
			o.Endpoints[0].Addresses = []string{"10.0.0.1", "10.0.0.2", "junk"}
		},
			func(*state.Slice) {}},
		{"leading zeros", func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Addresses = []string{"010.000.000.001"} },
			func(*state.Slice) {}},
		{"port unset", func(o *discoveryv1.EndpointSlice) {
			o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: new("all")})
		},
			func(*state.Slice) {}},
		{"port name and protocol unset", func(o *discoveryv1.EndpointSlice) { o.Ports = []discoveryv1.EndpointPort{{Port: new(int32(1))}} },
			func(s *state.Slice) { s.Ports = []state.SlicePort{{Protocol: state.TCP, Port: 1}} }},
		{"protocols", func(o *discoveryv1.EndpointSlice) {
			o.Ports = []discoveryv1.EndpointPort{
				{Name: new("a"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(53))},
				{Name: new("b"), Protocol: new(corev1.ProtocolSCTP), Port: new(int32(65535))},
			}
		}, func(s *state.Slice) {
			s.Ports = []state.SlicePort{{Name: "a", Protocol: state.UDP, Port: 53}, {Name: "b", Protocol: state.SCTP, Port: 65535}}
		}},
		{"node", func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].NodeName = new("node-7") },
			func(s *state.Slice) { s.Endpoints[0].Node = "node-7" }},
		{"hints", func(o *discoveryv1.EndpointSlice) {
			o.Endpoints[0].Hints = &discoveryv1.EndpointHints{
				ForZones: []discoveryv1.ForZone{{Name: "a"}, {Name: "b"}}, ForNodes: []discoveryv1.ForNode{{Name: "n"}},
			}
		}, func(s *state.Slice) {
			s.Endpoints[0].Hints = &state.Hints{Zones: []string{"a", "b"}, Nodes: []string{"n"}}
		}},
		{"empty hints", func(o *discoveryv1.EndpointSlice) { o.Endpoints[0].Hints = &discoveryv1.EndpointHints{} }, func(*state.Slice) {}},
		{"weight", func(o *discoveryv1.EndpointSlice) { o.Annotations = map[string]string{annotationWeight: "65535"} },
			func(s *state.Slice) { s.Weight = 65535 }},
		{"weight 0", func(o *discoveryv1.EndpointSlice) { o.Annotations = map[string]string{annotationWeight: "0"} },
			func(s *state.Slice) { s.Weight = 0 }},
		{"backup", func(o *discoveryv1.EndpointSlice) { o.Annotations = map[string]string{annotationBackup: "true"} },
			func(s *state.Slice) { s.Backup = true }},
		{"no backup", func(o *discoveryv1.EndpointSlice) { o.Annotations = map[string]string{annotationBackup: "false"} },
			func(*state.Slice) {}},
		{"trigger", func(o *discoveryv1.EndpointSlice) {
			o.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-02T03:04:05.25+01:00"}
		}, func(s *state.Slice) { s.Trigger = time.Date(2026, 1, 2, 2, 4, 5, 25e7, time.UTC) }},
		// The Service names its proxy. The label on a slice is a copy and may be out of date.
		{"name of another proxy", func(o *discoveryv1.EndpointSlice) { o.Labels[LabelProxyName] = "other" }, func(*state.Slice) {}},
		{"nothing in it", func(o *discoveryv1.EndpointSlice) { o.Ports, o.Endpoints = nil, nil },
			func(s *state.Slice) { s.Ports, s.Endpoints = nil, nil }},
		{"name that does not begin with the Service's", func(o *discoveryv1.EndpointSlice) { o.Labels[discoveryv1.LabelServiceName] = "other" },
			func(s *state.Slice) { s.Service.Name = "other" }},
	} {
		t.Run(tt.name, func(t *testing.T) { checkSlice(t, tt.api, tt.want, nil) })
	}
}

// TestMalformedSlice has one row for each field that can be malformed. It checks what remains and what is reported.
func TestMalformedSlice(t *testing.T) {
	for _, tt := range []struct {
		name     string
		api      func(*discoveryv1.EndpointSlice)
		want     func(*state.Slice)
		problems []problem
	}{
		{"addresses", func(o *discoveryv1.EndpointSlice) {
			for _, a := range []string{"10.0.0.256", "0.0.0.0", "239.0.0.1", "fd00::1", "pod.example.com"} {
				o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
			}
			o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{}, discoveryv1.Endpoint{Addresses: []string{"10.0.0.2"}})
		}, func(s *state.Slice) { s.Endpoints = append(s.Endpoints, endpoint("10.0.0.2")) },
			[]problem{
				{"endpoints[1].addresses[0]", `"10.0.0.256" is not an IP address`},
				{"endpoints[2].addresses[0]", `"0.0.0.0" is the unspecified address`},
				{"endpoints[3].addresses[0]", `"239.0.0.1" is a multicast address`},
				{"endpoints[4].addresses[0]", `"fd00::1" is not an IPv4 address, as addressType says`},
				{"endpoints[5].addresses[0]", `"pod.example.com" is not an IP address`},
				{"endpoints[6].addresses", "empty: the endpoint is ignored"},
			}},
		{"ports", func(o *discoveryv1.EndpointSlice) {
			o.Ports = append(o.Ports,
				discoveryv1.EndpointPort{Port: new(int32(0))}, discoveryv1.EndpointPort{Port: new(int32(65536))},
				discoveryv1.EndpointPort{Port: new(int32(1)), Protocol: new(corev1.Protocol("udp"))})
		}, func(*state.Slice) {},
			[]problem{
				{"ports[1].port", "0 is not a port number (1 to 65535)"},
				{"ports[2].port", "65536 is not a port number (1 to 65535)"},
				{"ports[3].protocol", `"udp" is not one of TCP, UDP and SCTP`},
			}},
		{"weight", func(o *discoveryv1.EndpointSlice) { o.Annotations = map[string]string{annotationWeight: "65536"} },
			func(*state.Slice) {},
			[]problem{{"metadata.annotations[verdict-proxy.github.io/weight]", `"65536" is not a number from 0 to 65535: weight 1 is used`}}},
		{"backup", func(o *discoveryv1.EndpointSlice) { o.Annotations = map[string]string{annotationBackup: "yes"} },
			func(*state.Slice) {},
			[]problem{{"metadata.annotations[verdict-proxy.github.io/backup]", `"yes" is not true or false: the endpoints are no backup`}}},
		{"trigger", func(o *discoveryv1.EndpointSlice) {
			o.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: "noon"}
		}, func(*state.Slice) {},
			[]problem{{"metadata.annotations[endpoints.kubernetes.io/last-change-trigger-time]", `"noon" is not a time (RFC 3339)`}}},
	} {
		t.Run(tt.name, func(t *testing.T) { checkSlice(t, tt.api, tt.want, tt.problems) })
	}
}

func TestSliceIgnored(t *testing.T) {
	for _, tt := range []struct {
		name     string
		api      func(*discoveryv1.EndpointSlice)
		problems []problem
	}{
		{"FQDN", func(o *discoveryv1.EndpointSlice) { o.AddressType = discoveryv1.AddressTypeFQDN }, nil},
		{"headless", func(o *discoveryv1.EndpointSlice) { o.Labels[corev1.IsHeadlessService] = "" }, nil},
		{"address type", func(o *discoveryv1.EndpointSlice) { o.AddressType = "ipv4" },
			[]problem{{"addressType", `"ipv4" is not one of IPv4, IPv6 and FQDN: the slice is ignored`}}},
		{"no Service", func(o *discoveryv1.EndpointSlice) { o.Labels = nil },
			[]problem{{"metadata.labels[kubernetes.io/service-name]", "missing: the slice belongs to no Service"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, problems := New().Slice(sourcetest.Slice(tt.api))
			if got != nil {
				t.Errorf("got %v", got)
			}
			checkProblems(t, KindSlice, wantSlice().Name, tt.problems, problems)
		})
	}
	got, problems := New().Slice(sourcetest.Slice(func(o *discoveryv1.EndpointSlice) { o.Name = "" }))
	if got != nil {
		t.Errorf("a slice without name: got %v", got)
	}
	checkProblems(t, KindSlice, state.Name{Namespace: "shop"}, []problem{{"metadata.name", "missing: the object is ignored"}}, problems)
}

// TestStringsAreShared: 500,000 endpoints must not have 500,000 copies of the names of nodes.
func TestStringsAreShared(t *testing.T) {
	c := New()
	decoded := func() *discoveryv1.EndpointSlice {
		return sourcetest.Slice(func(o *discoveryv1.EndpointSlice) {
			o.Namespace = strings.Clone("shop")
			for range 3 {
				o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
					Addresses: []string{"10.0.0.2"}, NodeName: new(strings.Clone("node-7")),
					Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: strings.Clone("zone-a")}}},
				})
			}
		})
	}
	a, _ := c.Slice(decoded())
	b, _ := c.Slice(decoded())
	for what, pair := range map[string][2]string{
		"namespace":      {a.Namespace, b.Namespace},
		"of the Service": {a.Namespace, a.Service.Namespace},
		"node":           {a.Endpoints[1].Node, b.Endpoints[2].Node},
		"zone":           {a.Endpoints[1].Hints.Zones[0], b.Endpoints[1].Hints.Zones[0]},
		"Service's name": {a.Name.Name[:3], a.Service.Name},
		"port":           {a.Ports[0].Name, b.Ports[0].Name},
	} {
		if unsafe.StringData(pair[0]) != unsafe.StringData(pair[1]) {
			t.Errorf("%s: two copies of %q", what, pair[0])
		}
	}
	if a.Endpoints[1].Hints != a.Endpoints[3].Hints {
		t.Error("equal hints of one slice do not share a value")
	}
}

func TestInternerIsBounded(t *testing.T) {
	in := newInterner(internLimit)
	for i := range 3 * internLimit {
		in.share(fmt.Sprint(i))
	}
	if len(in.known) > internLimit {
		t.Errorf("%d strings are kept, want at most %d", len(in.known), internLimit)
	}
}
