package cluster

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/sink"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// BenchmarkHeldMemory reports the memory that the store and the sinks need for a cluster. The benchmark creates the API
// objects one by one with strings of their own, as a watch does.
func BenchmarkHeldMemory(b *testing.B) {
	for _, services := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			for b.Loop() {
				before := sourcetest.HeldMemory()
				c, store := convert.New(), state.NewStore()
				into := sink.New(store)
				slices := feed[*discoveryv1.EndpointSlice, state.Slice]{converter: c, convert: c.Slice, sink: into.Slices}
				all := feed[*corev1.Service, state.Service]{converter: c, convert: c.Service, sink: into.Services}
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
				held := float64(sourcetest.HeldMemory() - before)
				b.ReportMetric(held/(1<<20), "MiB-held")
				b.ReportMetric(held/float64(services*10), "B/endpoint")
				runtime.KeepAlive(store)
				runtime.KeepAlive(into)
				runtime.KeepAlive(c)
			}
		})
	}
}

func benchService(i int) *corev1.Service {
	return sourcetest.Service(func(o *corev1.Service) {
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
			return tenantService(i, sourcetest.ServiceWithExternalIPs(60_000)), nil
		},
		"ports": func(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
			o := sourcetest.Service(func(*corev1.Service) {})
			for j := range 30_000 {
				o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d-%d", i, j), Port: int32(j + 1)})
			}
			return tenantService(i, o), nil
		},
		"source ranges": func(i int) (*corev1.Service, *discoveryv1.EndpointSlice) {
			o := sourcetest.Service(func(*corev1.Service) {})
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
			o := sourcetest.Service(func(*corev1.Service) {})
			o.Labels = map[string]string{"a": strings.Repeat("x", 500_000)}
			o.Annotations = map[string]string{"verdict-proxy.github.io/scheduler": strings.Repeat("y", 500_000)}
			return tenantService(i, o), nil
		},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				before, written := sourcetest.HeldMemory(), 0
				c, store := convert.New(), state.NewStore()
				into := sink.New(store)
				for i := range objects {
					service, slice := tenant(i)
					if service != nil {
						written += service.Size()
						value, problems := c.Service(service)
						into.Services.Put(sink.Found[state.Service]{Name: c.NameOf(service), Value: value, Problems: problems})
					} else {
						written += slice.Size()
						value, problems := c.Slice(slice)
						into.Slices.Put(sink.Found[state.Slice]{Name: c.NameOf(slice), Value: value, Problems: problems})
					}
				}
				held := float64(sourcetest.HeldMemory()) - float64(before)
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
	c := convert.New()
	for i := 0; b.Loop(); i++ {
		c.Slice(list[i%len(list)])
	}
}

// TestLongAnnotationsAreNotHeld: a tenant writes new annotations all the time, and nothing of them stays in memory.
func TestLongAnnotationsAreNotHeld(t *testing.T) {
	c, store := convert.New(), state.NewStore()
	into := feed[*corev1.Service, state.Service]{converter: c, convert: c.Service, sink: sink.New(store).Services}
	before := sourcetest.HeldMemory()
	for i := range 200 {
		value := fmt.Sprint(i, " ", strings.Repeat("x", 250_000))
		if i%2 == 0 {
			value = fmt.Sprint(i, strings.Repeat(" ", 250_000)) // short without its white space
		}
		if err := into.Update(sourcetest.Annotated(value)); err != nil {
			t.Fatal(err)
		}
	}
	if held := int64(sourcetest.HeldMemory()) - int64(before); held > 100_000 {
		t.Errorf("%d bytes are held", held)
	}
	runtime.KeepAlive(into)
}

// BenchmarkConvertSlices converts 1,000 slices of 10 endpoints. B/endpoint is the memory that remains for each
// endpoint, including its share of the slice, after the API objects are gone. B/op also counts temporary memory.
func BenchmarkConvertSlices(b *testing.B) {
	const slices, endpoints = 1000, 10
	objects := make([]*discoveryv1.EndpointSlice, slices)
	for i := range objects {
		objects[i] = benchSlice(i, endpoints)
	}
	b.ReportAllocs()
	kept := make([]*state.Slice, slices)
	for b.Loop() {
		c := convert.New()
		for i, o := range objects {
			kept[i], _ = c.Slice(o)
		}
	}
	bytes := 0
	for _, s := range kept {
		bytes += int(unsafe.Sizeof(*s)) + cap(s.Endpoints)*int(unsafe.Sizeof(state.Endpoint{})) +
			cap(s.Ports)*int(unsafe.Sizeof(state.SlicePort{})) + len(s.Name.Name)
	}
	b.ReportMetric(float64(bytes)/(slices*endpoints), "B/endpoint")
}

func benchSlice(i, endpoints int) *discoveryv1.EndpointSlice {
	return sourcetest.Slice(func(o *discoveryv1.EndpointSlice) {
		o.Name = fmt.Sprintf("service-%05d-x7k2p", i)
		o.Labels[discoveryv1.LabelServiceName] = fmt.Sprintf("service-%05d", i)
		o.Endpoints = nil
		for e := range endpoints {
			o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", i/250, i%250, e+1)},
				NodeName:   new(fmt.Sprintf("node-%04d", (i+e)%1000)),
				Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
				Zone:       new("zone-a"),
				TargetRef:  &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("pod-%d-%d", i, e)},
			})
		}
	})
}
