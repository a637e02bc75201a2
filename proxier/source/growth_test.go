package source

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// The benchmarks in this file convert Services of a tenant who writes as much into one object as the API server takes.
// The cost of each must grow with the size of the object, and not with its square.

// BenchmarkExternalIPs converts a Service with many external IPs.
func BenchmarkExternalIPs(b *testing.B) {
	for _, n := range []int{600, 6000, 60_000} {
		grows(b, n, serviceWithExternalIPs(n))
	}
}

// BenchmarkServicePorts converts a Service with many ports.
func BenchmarkServicePorts(b *testing.B) {
	for _, n := range []int{200, 2000, 20_000} {
		grows(b, n, apiService(func(o *corev1.Service) {
			for i := range n {
				o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1000)})
			}
		}))
	}
}

func grows(b *testing.B, n int, o *corev1.Service) {
	b.Run(fmt.Sprint(n), func(b *testing.B) {
		c := newConverter()
		for b.Loop() {
			c.service(o)
		}
	})
}

func serviceWithExternalIPs(n int) *corev1.Service {
	return apiService(func(o *corev1.Service) {
		for i := range n {
			o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, fmt.Sprintf("203.%d.%d.%d", i/62500, i/250%250, i%250+1))
		}
	})
}

// TestLongListsKeepEachValueOnce: long lists are searched in another way than short ones.
func TestLongListsKeepEachValueOnce(t *testing.T) {
	o := serviceWithExternalIPs(1000)
	o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, o.Spec.ExternalIPs...)
	svc, problems := newConverter().service(o)
	if len(svc.ExternalIPs) != 1000 || len(problems) != 0 {
		t.Errorf("%d external IPs, problems %v; want 1000 and none", len(svc.ExternalIPs), problems)
	}
}

// TestListsAreBounded: of one object, no more is read than any budget can use.
func TestListsAreBounded(t *testing.T) {
	svc, problems := newConverter().service(serviceWithExternalIPs(maxList + 5))
	if len(svc.ExternalIPs) != maxList || len(problems) != 1 || problems[0].Field != "spec.externalIPs" {
		t.Errorf("%d external IPs, problems %v; want %d and one", len(svc.ExternalIPs), problems, maxList)
	}
}

// TestManyFaultsAreFewProblems: only the first faults of an object are kept.
func TestManyFaultsAreFewProblems(t *testing.T) {
	_, problems := newConverter().service(apiService(func(o *corev1.Service) {
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

// manyFiles is a folder with a Service in each of its files, and a function that writes one of them.
func manyFiles(t testing.TB, n int) (m *Manifests, write func(i, port int)) {
	dir := t.TempDir()
	write = func(i, port int) {
		text := docs(service(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.%d", i/250, i%250)), strings.ReplaceAll(webSlice, "web", fmt.Sprintf("s%d", i)))
		text = strings.Replace(text, "port: 80}", fmt.Sprintf("port: %d}", port), 1)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05d.yaml", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		write(i, 80)
	}
	m = NewManifests(ManifestsOptions{Dir: dir, NodeName: "n1", Store: state.NewStore(), Log: slog.New(slog.DiscardHandler)})
	if err := m.scan(); err != nil {
		t.Fatal(err)
	}
	for _, file := range m.files { // otherwise each file is read again for two seconds
		file.readAt = file.readAt.Add(time.Hour)
	}
	return m, write
}

// BenchmarkManifestChange writes one of many files again.
func BenchmarkManifestChange(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprintf("files=%d", n), func(b *testing.B) {
			m, write := manyFiles(b, n)
			for i := 0; b.Loop(); i++ {
				write(i%n, 81+i%1000)
				if err := m.scan(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestLookIsCheap: a look at unchanged files asks the kernel once for each of them, and remembers nothing.
func TestLookIsCheap(t *testing.T) {
	const files, most = 500, 6 // measured: 5
	m, _ := manyFiles(t, files)
	allocations := testing.AllocsPerRun(5, func() {
		if err := m.scan(); err != nil {
			t.Fatal(err)
		}
	})
	if allocations > files*most {
		t.Errorf("%.1f allocations for each unchanged file, want at most %d", allocations/files, most)
	}
}
