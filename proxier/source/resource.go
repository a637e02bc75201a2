package source

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// With these selectors, the API server does not send objects that the converter would ignore. As in upstream 1.37, each
// label counts for one kind only: a Service names the proxy that serves it, and a slice is marked as headless.
const (
	notOfAnotherProxy = "!" + labelProxyName
	servedSlices      = "!" + labelHeadless
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

	optional bool   // the proxy can work without this resource
	without  string // what does not work then
}

// lists adapts a typed list method to the type that reflectors take.
func lists[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) cache.ListWithContextFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

func (k *Kubernetes) services(c *converter, into *sink[state.Service]) resource {
	api := k.client.CoreV1().Services(metav1.NamespaceAll)
	headless := fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String()
	return resource{
		name: resourceServices, example: &corev1.Service{}, list: lists(api.List), watch: api.Watch,
		tweak: func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = notOfAnotherProxy, headless },
		into: &feed[*corev1.Service, state.Service]{
			convert: c.service, strings: c.strings, sink: into, delivered: k.first.expect(resourceServices),
		},
	}
}

func (k *Kubernetes) slices(c *converter, into *sink[state.Slice]) resource {
	api := k.client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
	return resource{
		name: resourceSlices, example: &discoveryv1.EndpointSlice{}, list: lists(api.List), watch: api.Watch,
		tweak: func(o *metav1.ListOptions) { o.LabelSelector = servedSlices },
		into: &feed[*discoveryv1.EndpointSlice, state.Slice]{
			convert: c.slice, strings: c.strings, sink: into, delivered: k.first.expect(resourceSlices),
		},
	}
}

func (k *Kubernetes) node(c *converter, into *sink[state.Node], name string) resource {
	api := k.client.CoreV1().Nodes()
	own := fields.OneTermEqualSelector("metadata.name", name).String()
	return resource{
		name: "nodes", example: &corev1.Node{}, list: lists(api.List), watch: api.Watch,
		tweak: func(o *metav1.ListOptions) { o.FieldSelector = own },
		into: &feed[*corev1.Node, state.Node]{
			convert: c.onlyNode(name), strings: c.strings, sink: into, delivered: k.first.expect("nodes"),
		},
	}
}

func (k *Kubernetes) serviceCIDRs(c *converter, into *sink[serviceCIDR]) resource {
	api := k.client.NetworkingV1().ServiceCIDRs()
	return resource{
		name: "servicecidrs", example: &networkingv1.ServiceCIDR{}, list: lists(api.List), watch: api.Watch,
		tweak:    func(*metav1.ListOptions) {},
		optional: true, without: "packets to unallocated cluster IPs are not dropped",
		into: &feed[*networkingv1.ServiceCIDR, serviceCIDR]{
			convert: c.serviceCIDR, strings: c.strings, sink: into, delivered: k.first.expectOptional("servicecidrs"),
		},
	}
}

// feed receives the objects of one resource from a reflector, converts them at once and passes them to a sink. It keeps
// no API object after a method has returned.
type feed[O metav1.Object, T any] struct {
	convert   func(O) (*T, []state.Problem)
	strings   *interner
	sink      *sink[T]
	delivered func() // called after each complete list
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
	f.sink.put(v)
	return nil
}

// Delete receives an object that is gone, or a tombstone that has only its key.
func (f *feed[O, T]) Delete(obj any) error {
	name, err := cache.DeletionHandlingObjectToName(obj)
	if err != nil {
		return fmt.Errorf("delete an object of kind %s: %T has no name: %w; the object stays in force", f.sink.kind, obj, err)
	}
	f.sink.drop(state.Name{Namespace: name.Namespace, Name: name.Name})
	return nil
}

// Replace receives a complete list, at the start and after a watch was interrupted for too long. Objects that are not
// in the list are gone.
func (f *feed[O, T]) Replace(objects []any, _ string) error {
	all := make([]found[T], 0, len(objects))
	for i, obj := range objects {
		v, err := f.find(obj)
		if err != nil {
			return err
		}
		all = append(all, v)
		objects[i] = nil // frees the API object, which is in the list if the list was not streamed
	}
	f.sink.replace(all)
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
func (f *feed[O, T]) find(obj any) (found[T], error) {
	switch o := obj.(type) {
	case found[T]:
		return o, nil
	case O:
		value, problems := f.convert(o)
		name := state.Name{Namespace: f.strings.share(o.GetNamespace()), Name: o.GetName()}
		return found[T]{name: name, value: value, problems: problems}, nil
	}
	return found[T]{}, fmt.Errorf("convert to %s: the API server sent a %T; it is ignored", f.sink.kind, obj)
}
