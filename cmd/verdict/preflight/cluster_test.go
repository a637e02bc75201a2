package preflight

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// TestWay: the API server must not be reached through its own Service, whether it is named by an address or by a name.
func TestWay(t *testing.T) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec:       corev1.ServiceSpec{ClusterIPs: []string{"127.0.0.1", "::1"}},
	}
	for host, want := range map[string]Status{
		"192.0.2.1": OK, "127.0.0.1": Error, "::1": Error, "localhost": Error, "no-such-host.invalid": Warning,
	} {
		list := Cluster(t.Context(), fake.NewClientset(service), host)
		f := list[len(list)-1]
		if len(list) != 2 || f.Status != want || (f.Remedy == "") != (want == OK) {
			t.Errorf("%s: %+v, want %s", host, list, want)
		}
		if want == Warning && !strings.Contains(f.Detail, host) {
			t.Errorf("%s: %+v", host, f)
		}
	}
}
