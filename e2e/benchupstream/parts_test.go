package benchupstream

import (
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/lab"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

func TestCountLegacy(t *testing.T) {
	text := "# Generated\n*nat\n:PREROUTING ACCEPT [0:0]\n:KUBE-SVC-X - [0:0]\n-A KUBE-SVC-X -j RETURN\nCOMMIT\n"
	if got, want := countLegacy(text), (measure.Figures{"chains": 2, "rules": 1, "sets": 0}); !maps.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestStoredObjects expects the values for etcd to be objects that an API server can read.
func TestStoredObjects(t *testing.T) {
	made := &templates{shape: tenEach(50), service: newService(0), slice: tenEach(50).slice(0), address: &networkingv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Name: serviceIP(0).String(), Labels: map[string]string{"ipaddress.kubernetes.io/ip-family": "IPv4"}},
		Spec:       networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: serviceName(0)}},
	}}
	made.service.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "someone"}}
	list, err := made.objects(41)
	lab.Must(t, err)
	svc, sl, ip := &corev1.Service{}, &discoveryv1.EndpointSlice{}, &networkingv1.IPAddress{}
	for i, into := range []interface {
		metav1.Object
	}{svc, sl, ip} {
		if !strings.HasPrefix(string(list[i].value), "k8s\x00") {
			t.Errorf("%s: not in the form of storage", list[i].key)
		}
		switch o := into.(type) {
		case *corev1.Service:
			err = readTemplate(list[i].value, o)
		case *discoveryv1.EndpointSlice:
			err = readTemplate(list[i].value, o)
		case *networkingv1.IPAddress:
			err = readTemplate(list[i].value, o)
		}
		if err != nil || into.GetUID() == "" || !strings.HasSuffix(list[i].key, "/"+into.GetName()) {
			t.Errorf("%s: %v, name %q, UID %q", list[i].key, err, into.GetName(), into.GetUID())
		}
	}
	if svc.Spec.ClusterIP != serviceIP(41).String() || len(svc.ManagedFields) != 1 || ip.Spec.ParentRef.Name != svc.Name {
		t.Errorf("Service %+v, parent %+v", svc.Spec, ip.Spec.ParentRef)
	}
	if !reflect.DeepEqual(sl.Endpoints[9].Addresses, []string{podIP(41*perService + 9).String()}) || sl.Labels[discoveryv1.LabelServiceName] != svc.Name {
		t.Errorf("slice %+v", sl)
	}
}

// TestShapes expects each endpoint of a cluster at one Service.
func TestShapes(t *testing.T) {
	s, err := parseShape("5006:250011")
	lab.Must(t, err)
	seen := map[string]bool{}
	for i := range s.services {
		n := len(s.slice(i).Endpoints)
		if n < 49 || n > 50 {
			t.Fatalf("Service %d has %d endpoints", i, n)
		}
		for _, e := range s.slice(i).Endpoints {
			seen[e.Addresses[0]] = true
		}
	}
	if len(seen) != s.endpoints {
		t.Errorf("%d different endpoints, want %d", len(seen), s.endpoints)
	}
	for _, wrong := range []string{"", "100", "100:", "10:9", "10:20000"} {
		if s, err := parseShape(wrong); err == nil {
			t.Errorf("%q is %v", wrong, s)
		}
	}
}

func TestChangesAreAtDifferentServices(t *testing.T) {
	c := &changer{shape: tenEach(100), fresh: 1 << 22}
	names, addrs := map[string]bool{}, map[netip.Addr]bool{}
	for range 99 {
		s, a := c.next()
		if names[s.Name] || addrs[a] || s.Name == sliceName(0) || len(s.Endpoints) != perService+1 {
			t.Fatalf("%s with %s and %d endpoints", s.Name, a, len(s.Endpoints))
		}
		names[s.Name], addrs[a] = true, true
	}
}

func TestSynced(t *testing.T) {
	lines := map[string]string{
		"Verdict": `time=2026-01-01T00:00:00Z level=INFO msg="tables written" services=10000 added=130104 kernel=300ms duration=481.2ms`,
		"kube-proxy nftables, defaults": `I1121 07:00:00.1 1 proxier.go:1] "SyncProxyRules complete" ipFamily="IPv6" elapsed="9ms"` + "\n" +
			`I1121 07:00:00.1 1 proxier.go:1] "SyncProxyRules complete" ipFamily="IPv4" elapsed="481.2ms"`,
	}
	for _, k := range proxyKinds() {
		text, ok := lines[k.name]
		if !ok {
			continue
		}
		r := &running{kind: k, log: filepath.Join(t.TempDir(), "log")}
		if _, done := r.syncedAfter(); done {
			t.Errorf("%s: synchronized without a log", k.name)
		}
		writeFile(t, r.log, "something else\n"+text+"\n")
		if took, done := r.syncedAfter(); !done || took != 481200*time.Microsecond {
			t.Errorf("%s: %v, %s", k.name, done, took)
		}
	}
}

// TestPlot expects a line for each proxy that was measured.
func TestPlot(t *testing.T) {
	svg := plot(map[string][]measure.Point{"Verdict": {{X: 100, Y: 5}}, "kube-proxy nftables, defaults": {{X: 100, Y: 50}}}, measure.Machine{})
	if !strings.Contains(svg, ">Verdict<") || !strings.Contains(svg, "nftables, defaults<") || strings.Contains(svg, "iptables<") {
		t.Errorf("the picture has the wrong lines:\n%s", svg)
	}
}

func writeFile(t *testing.T, name, text string) {
	t.Helper()
	lab.Must(t, os.WriteFile(name, []byte(text), 0o644))
}
