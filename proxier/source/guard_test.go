package source

import (
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestConversionFillsEveryField converts complete API objects. So it fails when a value of package state gains a field
// that the converter does not set.
func TestConversionFillsEveryField(t *testing.T) {
	c := newConverter()
	service, serviceProblems := c.service(completeService())
	slice, sliceProblems := c.slice(completeSlice())
	node, nodeProblems := c.node(completeNode())
	for _, p := range append(append(serviceProblems, sliceProblems...), nodeProblems...) {
		t.Errorf("problem: %v", p)
	}
	if service.Only != nil {
		t.Errorf("an object limits its frontends to %v; only what the kernel has while files are unread does", service.Only)
	}
	service.Only = []state.Place{{Addr: service.ClusterIPs[0], Protocol: state.TCP, Port: 80}}
	for name, value := range map[string]any{"Service": *service, "Slice": *slice, "Node": *node} {
		reportZero(t, name, reflect.ValueOf(value))
	}
}

// reportZero reports every exported field below v that has the zero value.
func reportZero(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if v.IsZero() {
		t.Errorf("no object sets %s", path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		reportZero(t, path, v.Elem())
	case reflect.Slice:
		reportZero(t, path, v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				reportZero(t, path+"."+field.Name, v.Field(i))
			}
		}
	}
}

// completeService has a value in every field that matters to the proxy.
func completeService() *corev1.Service {
	return apiService(func(o *corev1.Service) {
		loadBalancer(o, corev1.LoadBalancerIngress{IP: "198.51.100.1"})
		o.UID = "6a3c1f5e-0b8d-4c57-9d0e-2f1a7b9c8d7e"
		o.Annotations = examples()
		o.Spec.ExternalIPs = []string{"203.0.113.1"}
		o.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
		o.Spec.Ports[0].NodePort = 30080
		o.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		o.Spec.InternalTrafficPolicy = ptr(corev1.ServiceInternalTrafficPolicyLocal)
		o.Spec.HealthCheckNodePort = 32000
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	})
}

// completeSlice has a value in every field that matters to the proxy.
func completeSlice() *discoveryv1.EndpointSlice {
	return apiSlice(func(o *discoveryv1.EndpointSlice) {
		o.Annotations = examples()
		o.Annotations[corev1.EndpointsLastChangeTriggerTime] = time.Unix(1_700_000_000, 0).Format(time.RFC3339Nano)
		o.Endpoints[0].NodeName = ptr("n1")
		o.Endpoints[0].Conditions.Terminating = ptr(true)
		o.Endpoints[0].Hints = &discoveryv1.EndpointHints{
			ForZones: []discoveryv1.ForZone{{Name: "a"}}, ForNodes: []discoveryv1.ForNode{{Name: "n1"}},
		}
	})
}

// completeNode has a value in every field that matters to the proxy.
func completeNode() *corev1.Node {
	return apiNode("n1", func(o *corev1.Node) {
		o.ObjectMeta = metav1.ObjectMeta{Name: "n1", Labels: map[string]string{corev1.LabelTopologyZone: "a"}}
		o.Spec.PodCIDRs = []string{"10.1.0.0/24"}
		o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	})
}

// TestSameHintsLooksAtEveryField: endpoints of a slice share their hints if sameHints says that they are equal.
func TestSameHintsLooksAtEveryField(t *testing.T) {
	c := newConverter()
	api := completeSlice().Endpoints[0].Hints
	converted, _ := c.hints(api, nil)
	if !sameHints(converted, api) {
		t.Error("hints differ from their own conversion")
	}
	for path, changed := range fields.Each(*api) {
		if sameHints(converted, &changed) {
			t.Errorf("sameHints ignores the field %s of the API", path)
		}
	}
	for path, changed := range fields.Each(*converted) {
		if sameHints(&changed, api) {
			t.Errorf("sameHints ignores the field %s of the state", path)
		}
	}
}

// TestSinkLooksAtEveryField: a change that the sink does not see would never reach the kernel.
func TestSinkLooksAtEveryField(t *testing.T) {
	c, into := newConverter(), newSinks(state.NewStore())
	service, _ := c.service(completeService())
	for path, changed := range fields.Each(*service) {
		if into.services.equal(service, &changed) {
			t.Errorf("the sink ignores Service.%s", path)
		}
	}
	slice, _ := c.slice(completeSlice())
	for path, changed := range fields.Each(*slice) {
		if into.slices.equal(slice, &changed) != strings.HasPrefix(path, "Trigger") {
			t.Errorf("the sink ignores Slice.%s, or it does not ignore the trigger time", path)
		}
	}
	node, _ := c.node(completeNode())
	for path, changed := range fields.Each(*node) {
		if into.nodes.equal(node, &changed) {
			t.Errorf("the sink ignores Node.%s", path)
		}
	}
}
