package source

import (
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// FuzzManifest reads any text as a manifest file: nothing panics, each object has a kind, and what it reports is bounded.
func FuzzManifest(f *testing.F) {
	for _, text := range []string{
		"", "---\n", "{}", "apiVersion: v1\nkind: Service\nmetadata: {name: a}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n",
		`{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}]}`,
		"apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a-1, labels: {kubernetes.io/service-name: a}}\n" +
			"addressType: IPv4\nports: [{port: 80}]\nendpoints: [{addresses: [10.0.0.1]}]\n",
		"a: &a [*a]\n", "a: &a {b: &b [*a, *a]}\n", "? {}\n: {}\n", "\xff\xfe", "kind: Service\n---\nkind: {\n",
	} {
		f.Add("f.yaml", []byte(text))
		f.Add("f.json", []byte(text))
	}
	example, err := os.ReadFile("../../config/deploy/base/daemonset.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add("daemonset.yaml", example)
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		got := newConverter().decodeFile(name, text)
		if n := len(got.objects) + len(got.broken); n > len(text)+1 {
			t.Fatalf("%d objects from %d bytes", n, len(text))
		}
		for _, o := range got.objects {
			if o.id.kind == "" {
				t.Fatalf("an object without a kind: %+v", o)
			}
			boundedProblems(t, o.problems)
		}
	})
}

// boundedProblems: a tenant's text must not fill the log or an Event.
func boundedProblems(t *testing.T, list []state.Problem) {
	t.Helper()
	const most, longest = 1000, 4096
	if len(list) > most {
		t.Fatalf("%d problems of one object", len(list))
	}
	for _, p := range list {
		if p.Reason == "" || len(p.Reason) > longest {
			t.Fatalf("a problem with a text of %d bytes: %.300s", len(p.Reason), p.Reason)
		}
	}
}

// FuzzAnnotations converts objects with any annotations: nothing panics, and whatever cannot be honored is a problem.
func FuzzAnnotations(f *testing.F) {
	for _, text := range []string{"", "rr", "65535", "-1", "65536", "1e3", "sh-port,mh-port", strings.Repeat("x", 300), "\x00", "2026-01-01T00:00:00Z"} {
		f.Add(text, text, text)
	}
	f.Fuzz(func(t *testing.T, scheduler, flags, weight string) {
		c := newConverter()
		svc, problems := c.service(apiService(func(o *corev1.Service) {
			o.Annotations = everyKey(scheduler)
			o.Annotations[annotationSchedulerFlags], o.Annotations[annotationHealthCheck] = flags, weight
		}))
		if svc == nil {
			t.Fatal("annotations make a Service disappear")
		}
		boundedProblems(t, problems)
		sl, problems := c.slice(apiSlice(func(o *discoveryv1.EndpointSlice) {
			o.Annotations = map[string]string{annotationWeight: weight, corev1.EndpointsLastChangeTriggerTime: flags}
		}))
		if sl == nil {
			t.Fatal("annotations make a slice disappear")
		}
		boundedProblems(t, problems)
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
		svc, problems := newConverter().service(apiService(func(o *corev1.Service) {
			o.Spec.ExternalIPs = []string{address, address}
			o.Spec.LoadBalancerSourceRanges = []string{prefix}
			o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: "fuzz", Port: int32(port), NodePort: int32(port)})
			o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
			o.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr(int32(seconds))}}
		}))
		boundedProblems(t, problems)
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
