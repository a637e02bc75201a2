package source

import (
	"context"

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
