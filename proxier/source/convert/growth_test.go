package convert

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// The benchmarks in this file convert Services of a tenant who writes as much into one object as the API server takes.
// The cost of each must grow with the size of the object, and not with its square.

// BenchmarkExternalIPs converts a Service with many external IPs.
func BenchmarkExternalIPs(b *testing.B) {
	for _, n := range []int{600, 6000, 60_000} {
		grows(b, n, sourcetest.ServiceWithExternalIPs(n))
	}
}

// BenchmarkServicePorts converts a Service with many ports.
func BenchmarkServicePorts(b *testing.B) {
	for _, n := range []int{200, 2000, 20_000} {
		grows(b, n, sourcetest.Service(func(o *corev1.Service) {
			for i := range n {
				o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1000)})
			}
		}))
	}
}

func grows(b *testing.B, n int, o *corev1.Service) {
	b.Run(fmt.Sprint(n), func(b *testing.B) {
		c := New()
		for b.Loop() {
			c.Service(o)
		}
	})
}

// TestLongListsKeepEachValueOnce: long lists are searched in another way than short ones.
func TestLongListsKeepEachValueOnce(t *testing.T) {
	o := sourcetest.ServiceWithExternalIPs(1000)
	o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, o.Spec.ExternalIPs...)
	svc, problems := New().Service(o)
	if len(svc.ExternalIPs) != 1000 || len(problems) != 0 {
		t.Errorf("%d external IPs, problems %v; want 1000 and none", len(svc.ExternalIPs), problems)
	}
}

// TestListsAreBounded: of one object, no more is read than any budget can use.
func TestListsAreBounded(t *testing.T) {
	svc, problems := New().Service(sourcetest.ServiceWithExternalIPs(maxList + 5))
	if len(svc.ExternalIPs) != maxList || len(problems) != 1 || problems[0].Field != "spec.externalIPs" {
		t.Errorf("%d external IPs, problems %v; want %d and one", len(svc.ExternalIPs), problems, maxList)
	}
}

// TestManyFaultsAreFewProblems: only the first faults of an object are kept.
func TestManyFaultsAreFewProblems(t *testing.T) {
	_, problems := New().Service(sourcetest.Service(func(o *corev1.Service) {
		for i := range 5000 {
			o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, fmt.Sprint("bad-", i))
		}
	}))
	if len(problems) != state.MaxProblems+1 {
		t.Fatalf("%d problems, want %d and one that counts the others", len(problems), state.MaxProblems)
	}
	if first, last := problems[0], problems[state.MaxProblems]; first.Field != "spec.externalIPs[0]" || last.More != 4992 {
		t.Errorf("first problem %+v, last problem %+v", first, last)
	}
}

// TestLabels: what counts as a DNS label is what counts for an API server.
func TestLabels(t *testing.T) {
	words := []string{"", strings.Repeat("a", 63), strings.Repeat("a", 64), "é", "a\xff"}
	for c := range 256 {
		s := string([]byte{byte(c)})
		words = append(words, s, "a"+s, s+"a", "a"+s+"a", "9"+s+"0")
	}
	for _, w := range words {
		if got, want := isLabel(w), len(validation.IsDNS1123Label(w)) == 0; got != want {
			t.Errorf("%q is a label: %v, want %v", w, got, want)
		}
	}
}

// TestNamesOfManyPorts: the names of one object's ports do not have those of others forgotten.
func TestNamesOfManyPorts(t *testing.T) {
	c := New()
	c.strings.limit = 2 * sharedPorts
	shared := c.strings.share("zone")
	c.Service(sourcetest.Service(func(o *corev1.Service) {
		for i := range 4 * sharedPorts {
			o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1000)})
		}
	}))
	if again := c.strings.share(strings.Clone(shared)); unsafe.StringData(again) != unsafe.StringData(shared) {
		t.Error("the name is not shared any more")
	}
}
