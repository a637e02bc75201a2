package preflight

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	ktesting "k8s.io/client-go/testing"
)

func cluster(t *testing.T, client kubernetes.Interface, host string) []Finding {
	list, _ := Cluster(t.Context(), client, host)
	return list
}

// TestWay: the API server must not be reached through its own Service, whether it is named by an address or by a name.
func TestWay(t *testing.T) {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec:       corev1.ServiceSpec{ClusterIPs: []string{"127.0.0.1", "::1"}},
	}
	for host, want := range map[string]Status{
		"192.0.2.1": OK, "127.0.0.1": Error, "::1": Error, "localhost": Error, "no-such-host.invalid": Warning,
	} {
		list := cluster(t, fake.NewClientset(service), host)
		f := list[len(list)-1]
		if len(list) != 2 || f.Status != want || (f.Remedy == "") != (want == OK) {
			t.Errorf("%s: %+v, want %s", host, list, want)
		}
		if want == Warning && !strings.Contains(f.Detail, host) {
			t.Errorf("%s: %+v", host, f)
		}
	}
}

// TestOptionalResource: without ServiceCIDRs, as before Kubernetes 1.33, Verdict serves, and the way to the API server is checked.
func TestOptionalResource(t *testing.T) {
	for resource, want := range map[string][]Status{"servicecidrs": {Warning, OK, OK}, "services": {Error}} {
		client := fake.NewClientset()
		client.PrependReactor("list", resource, func(ktesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewNotFound(schema.GroupResource{Resource: resource}, "")
		})
		var got []Status
		for _, f := range cluster(t, client, "192.0.2.1") {
			got = append(got, f.Status)
		}
		if !slices.Equal(got, want) {
			t.Errorf("without %s: %v, want %v", resource, got, want)
		}
	}
}
