package cluster

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/source/sink"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// With these selectors, the API server does not send objects that the converter would ignore. As in upstream 1.37, each
// label counts for one kind only: a Service names the proxy that serves it, and a slice is marked as headless.
const (
	notOfAnotherProxy = "!" + convert.LabelProxyName
	servedSlices      = "!" + corev1.IsHeadlessService
)

// The resources that rules are made of.
const (
	resourceServices = "services"
	resourceSlices   = "endpointslices"
)

// resource is one kind of object to list and watch.
type resource struct {
	name    string
	example runtime.Object
	list    cache.ListWithContextFunc
	watch   cache.WatchFuncWithContext
	tweak   func(*metav1.ListOptions)
	into    cache.ReflectorStore
	first   *arrival

	optional bool   // the proxy can work without this resource
	without  string // what does not work then
}

// arrival is the first complete list of a resource.
type arrival struct {
	once sync.Once
	over chan struct{} // closed when nobody waits for the list any more
}

func newArrival() *arrival { return &arrival{over: make(chan struct{})} }

// arrived notes that the list is there, or that the start does not wait for it.
func (a *arrival) arrived() { a.once.Do(func() { close(a.over) }) }

// waits reports whether the start waits for the list.
func (a *arrival) waits() bool {
	select {
	case <-a.over:
		return false
	default:
		return true
	}
}

// lists adapts a typed list method to the type that reflectors take.
func lists[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) cache.ListWithContextFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// newResources are the resources that the source reads, and what receives their objects.
func newResources(client kubernetes.Interface, nodeName string, into *sink.Sinks) []resource {
	c := convert.New()
	services, slices := client.CoreV1().Services(metav1.NamespaceAll), client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
	nodes, ranges := client.CoreV1().Nodes(), client.NetworkingV1().ServiceCIDRs()
	first := [...]*arrival{newArrival(), newArrival(), newArrival(), newArrival()}
	headless := fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String()
	own := fields.OneTermEqualSelector("metadata.name", nodeName).String()
	return []resource{{
		name: resourceServices, example: &corev1.Service{}, list: lists(services.List), watch: services.Watch,
		tweak: func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = notOfAnotherProxy, headless },
		first: first[0], into: newFeed(c, c.Service, into.Services, first[0].arrived),
	}, {
		name: resourceSlices, example: &discoveryv1.EndpointSlice{}, list: lists(slices.List), watch: slices.Watch,
		tweak: func(o *metav1.ListOptions) { o.LabelSelector = servedSlices },
		first: first[1], into: newFeed(c, c.Slice, into.Slices, first[1].arrived),
	}, {
		name: "nodes", example: &corev1.Node{}, list: lists(nodes.List), watch: nodes.Watch,
		tweak: func(o *metav1.ListOptions) { o.FieldSelector = own },
		first: first[2], into: newFeed(c, c.OnlyNode(nodeName), into.Nodes, first[2].arrived),
	}, {
		name: "servicecidrs", example: &networkingv1.ServiceCIDR{}, list: lists(ranges.List), watch: ranges.Watch,
		tweak:    func(*metav1.ListOptions) {},
		optional: true, without: "packets to unallocated cluster IPs are not dropped",
		first: first[3], into: newFeed(c, c.ServiceCIDR, into.ServiceCIDRs, first[3].arrived),
	}}
}

// feed receives the objects of one resource from a reflector, converts them at once and passes them to a sink. It keeps
// no API object after a method has returned.
type feed[O metav1.Object, T any] struct {
	converter *convert.Converter
	convert   func(O) (*T, []state.Problem)
	sink      *sink.Sink[T]
	delivered func() // called after each complete list
}

func newFeed[O metav1.Object, T any](
	c *convert.Converter, convert func(O) (*T, []state.Problem), into *sink.Sink[T], delivered func(),
) *feed[O, T] {
	return &feed[O, T]{converter: c, convert: convert, sink: into, delivered: delivered}
}

// The reflector collects a streamed list (WatchList) in a store of its own. Because feed is a TransformingStore, that
// store holds values of type found and no API objects.
var _ cache.TransformingStore = (*feed[metav1.Object, state.Service])(nil)

// Add receives a new object.
func (f *feed[O, T]) Add(obj any) error { return f.Update(obj) }

// Update receives a changed object.
func (f *feed[O, T]) Update(obj any) error {
	v, err := f.find(obj)
	if err != nil {
		return err
	}
	f.sink.Put(v)
	return nil
}

// Delete receives an object that is gone, or a tombstone that has only its key.
func (f *feed[O, T]) Delete(obj any) error {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return fmt.Errorf("delete an object of kind %s: %T has no name: %w; the object stays in force", f.sink.Kind, obj, err)
	}
	f.sink.Drop(state.Name{Namespace: name.Namespace, Name: name.Name})
	return nil
}

// Replace receives a complete list, at the start and after a watch was interrupted for too long. Objects that are not
// in the list are gone.
func (f *feed[O, T]) Replace(objects []any, _ string) error {
	all := make([]sink.Found[T], 0, len(objects))
	for i, obj := range objects {
		v, err := f.find(obj)
		if err != nil {
			return err
		}
		all = append(all, v)
		objects[i] = nil // frees the API object, which is in the list if the list was not streamed
	}
	f.sink.Replace(all)
	f.delivered()
	return nil
}

// Resync does nothing: the store keeps changes until they are applied, so none has to be delivered again.
func (f *feed[O, T]) Resync() error { return nil }

// Transformer converts the objects of a streamed list as they arrive.
func (f *feed[O, T]) Transformer() cache.TransformFunc {
	return func(obj any) (any, error) { return f.find(obj) }
}

// find converts an object, unless the transformer has converted it.
func (f *feed[O, T]) find(obj any) (sink.Found[T], error) {
	switch o := obj.(type) {
	case sink.Found[T]:
		return o, nil
	case O:
		value, problems := f.convert(o)
		return sink.Found[T]{Name: f.converter.NameOf(o), Value: value, Problems: problems}, nil
	}
	return sink.Found[T]{}, fmt.Errorf("convert to %s: the API server sent a %T; it is ignored", f.sink.Kind, obj)
}
