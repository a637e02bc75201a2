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
				store.Applied(pending)
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

// BenchmarkTenantMemory reports the memory that stays for objects of about 1 MB, for each byte that a tenant wrote. He
// must not make the proxy grow by more than twice of that.
func BenchmarkTenantMemory(b *testing.B) {
	const objects = 50
	for name, tenant := range map[string]func(i int) (service *corev1.Service, slice *discoveryv1.EndpointSlice){
		"external IPs": func(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
			return tenantService(i, serviceWithExternalIPs(60_000)), nil
		},
		"ports": func(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
			o := apiService(func(*corev1.Service) {})
			for j := range 30_000 {
				o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d-%d", i, j), Port: int32(j + 1)})
			}
			return tenantService(i, o), nil
		},
		"source ranges": func(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
			o := apiService(func(*corev1.Service) {})
			for j := range 60_000 {
				o.Spec.LoadBalancerSourceRanges = append(o.Spec.LoadBalancerSourceRanges, fmt.Sprintf("10.%d.%d.0/24", j/256, j%256))
			}
			return tenantService(i, o), nil
		},
		"hints": func(i int) (*corev1.Service, *discoveryv1.EndpointSlice) { return nil, hintedSlice(i) },
		"ports of slices": func(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
			o := benchSlice(i, 1)
			for j := range 20_000 {
				name, number := fmt.Sprintf("port-name-%d-%d", i, j), int32(j+1)
				o.Ports = append(o.Ports, discoveryv1.EndpointPort{Name: &name, Port: &number})
			}
			return nil, o
		},
		"annotations and labels": func(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
			o := apiService(func(*corev1.Service) {})
			o.Labels = map[string]string{"a": strings.Repeat("x", 500_000)}
			o.Annotations = map[string]string{annotationScheduler: strings.Repeat("y", 500_000)}
			return tenantService(i, o), nil
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before, written := heap(), 0
				c, store := newConverter(), state.NewStore()
				into := newSinks(store)
				for i := range objects {
					service, slice := tenant(i)
					if service != nil {
						written += service.Size()
						value, problems := c.service(service)
						into.services.put(found[state.Service]{name: nameOf(&service.ObjectMeta), value: value, problems: problems})
					} else {
						written += slice.Size()
						value, problems := c.slice(slice)
						into.slices.put(found[state.Slice]{name: nameOf(&slice.ObjectMeta), value: value, problems: problems})
					}
				}
				held := float64(heap()) - float64(before)
				b.ReportMetric(float64(written)/objects/1e6, "MB/object")
				b.ReportMetric(held/float64(written), "held/written")
				runtime.KeepAlive(store)
				runtime.KeepAlive(into)
				runtime.KeepAlive(c)
			}
		})
	}
}

func tenantService(i int, o *corev1.Service) *corev1.Service {
	o.Name = fmt.Sprintf("service-%05d", i)
	return o
}

// hintedSlice has 1,000 endpoints, each with as many hints as the API allows.
func hintedSlice(i int) *discoveryv1.EndpointSlice {
	o := benchSlice(i, 1000)
	for j := range o.Endpoints {
		h := &discoveryv1.EndpointHints{}
		for k := range 8 {
			h.ForZones = append(h.ForZones, discoveryv1.ForZone{Name: fmt.Sprintf("zone-%d-%d-%d", i, j, k) + strings.Repeat("z", 40)})
			h.ForNodes = append(h.ForNodes, discoveryv1.ForNode{Name: fmt.Sprintf("node-%d-%d-%d", i, j, k) + strings.Repeat("n", 40)})
		}
		o.Endpoints[j].Hints = h
	}
	return o
}

// BenchmarkNewNames converts slices of a tenant who never uses a name twice: 1,000 endpoints with 16,000 hints each.
func BenchmarkNewNames(b *testing.B) {
	var list []*discoveryv1.EndpointSlice
	for i := range 20 {
		list = append(list, hintedSlice(i))
	}
	c := newConverter()
	for i := 0; b.Loop(); i++ {
		c.slice(list[i%len(list)])
	}
}
