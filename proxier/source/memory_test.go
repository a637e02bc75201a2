package source

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// BenchmarkHeldMemory reports the memory that the store and the sinks need for a cluster. The benchmark creates the API
// objects one by one with strings of their own, as a watch does.
func BenchmarkHeldMemory(b *testing.B) {
	for _, services := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			for b.Loop() {
				before := heap()
				c, store := newConverter(), state.NewStore()
				into := newSinks(store)
				slices := feed[*discoveryv1.EndpointSlice, state.Slice]{convert: c.slice, strings: c.strings, sink: into.slices}
				all := feed[*corev1.Service, state.Service]{convert: c.service, strings: c.strings, sink: into.services}
				for i := range services {
					if err := slices.Add(benchSlice(i, 10)); err != nil {
						b.Fatal(err)
					}
					if err := all.Add(benchService(i)); err != nil {
						b.Fatal(err)
					}
				}
				store.MarkSynced()
				pending, _ := store.Pending()
				store.Applied(pending.Revision)
				held := float64(heap() - before)
				b.ReportMetric(held/(1<<20), "MiB-held")
				b.ReportMetric(held/float64(services*10), "B/endpoint")
				runtime.KeepAlive(store)
				runtime.KeepAlive(into)
				runtime.KeepAlive(c)
			}
		})
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func benchService(i int) *corev1.Service {
	return apiService(func(o *corev1.Service) {
		o.Namespace = strings.Clone("shop")
		o.Name = fmt.Sprintf("service-%05d", i)
		o.Spec.ClusterIP = fmt.Sprintf("10.%d.%d.%d", 96+i/62500, i/250%250, i%250+1)
		o.Spec.ClusterIPs = []string{o.Spec.ClusterIP}
	})
}
