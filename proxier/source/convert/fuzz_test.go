package convert

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// FuzzAnnotations converts objects with any annotations: nothing panics, and whatever cannot be honored is a problem.
func FuzzAnnotations(f *testing.F) {
	for _, text := range []string{"", "rr", "65535", "-1", "65536", "1e3", "sh-port,mh-port", strings.Repeat("x", 300), "\x00", "2026-01-01T00:00:00Z"} {
		f.Add(text, text, text)
	}
	f.Fuzz(func(t *testing.T, scheduler, flags, weight string) {
		c := New()
		svc, problems := c.Service(sourcetest.Service(func(o *corev1.Service) {
			o.Annotations = sourcetest.EveryKey(scheduler)
			o.Annotations[annotationSchedulerFlags], o.Annotations[annotationHealthCheck] = flags, weight
		}))
		if svc == nil {
			t.Fatal("annotations make a Service disappear")
		}
		sourcetest.BoundedProblems(t, problems)
		sl, problems := c.Slice(sourcetest.Slice(func(o *discoveryv1.EndpointSlice) {
			o.Annotations = map[string]string{annotationWeight: weight, corev1.EndpointsLastChangeTriggerTime: flags}
		}))
		if sl == nil {
			t.Fatal("annotations make a slice disappear")
		}
		sourcetest.BoundedProblems(t, problems)
		if len(problems) == 0 && weight == "" && sl.Weight != state.DefaultWeight {
			t.Fatalf("weight %d without an annotation", sl.Weight)
		}
	})
}

// FuzzAddresses converts a Service with any addresses and ranges. What is taken is canonical.
func FuzzAddresses(f *testing.F) {
	for _, text := range []string{"10.0.0.1", "010.0.0.1", "::ffff:10.0.0.1", "fe80::1%eth0", "10.0.0.0/8", "::/0", " 10.0.0.0/8", "10.0.0.1/33", ""} {
		f.Add(text, text, uint32(80), int64(10800))
	}
	f.Fuzz(func(t *testing.T, address, prefix string, port uint32, seconds int64) {
		svc, problems := New().Service(sourcetest.Service(func(o *corev1.Service) {
			o.Spec.ExternalIPs = []string{address, address}
			o.Spec.LoadBalancerSourceRanges = []string{prefix}
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "fuzz", Port: int32(port), NodePort: int32(port)})
			o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(seconds))}}
		}))
		sourcetest.BoundedProblems(t, problems)
		if svc == nil {
			t.Fatal("an address makes a Service disappear")
		}
		for _, a := range append(svc.ExternalIPs, svc.LoadBalancerIPs...) {
			if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
				t.Fatalf("address %q became %s", address, a)
			}
		}
		for _, p := range svc.SourceRanges {
			if !p.IsValid() || p != p.Masked() || p.Addr().Is4In6() {
				t.Fatalf("range %q became %s", prefix, p)
			}
		}
		if svc.Affinity < 0 || svc.Affinity > 10*365*24*time.Hour {
			t.Fatalf("%d seconds became %s", seconds, svc.Affinity)
		}
	})
}
