package cluster

import (
	"context"

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

	optional bool   // the proxy can work without this resource
	without  string // what does not work then
}

// lists adapts a typed list method to the type that reflectors take.
func lists[L runtime.Object](list func(context.Context, metav1.ListOptions) (L, error)) cache.ListWithContextFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// newResources are the resources that the source reads, and what receives their objects.
func newResources(client kubernetes.Interface, nodeName string, into *sink.Sinks, first *firstLists) []resource {
	c := convert.New()
	services, slices := client.CoreV1().Services(metav1.NamespaceAll), client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll)
	nodes, ranges := client.CoreV1().Nodes(), client.NetworkingV1().ServiceCIDRs()
	headless := fields.OneTermNotEqualSelector("spec.clusterIP", corev1.ClusterIPNone).String()
	own := fields.OneTermEqualSelector("metadata.name", nodeName).String()
	return []resource{{
		name: resourceServices, example: &corev1.Service{}, list: lists(services.List), watch: services.Watch,
		tweak: func(o *metav1.ListOptions) { o.LabelSelector, o.FieldSelector = notOfAnotherProxy, headless },
		into:  newFeed(c, c.Service, into.Services, first.expect(resourceServices)),
	}, {
		name: resourceSlices, example: &discoveryv1.EndpointSlice{}, list: lists(slices.List), watch: slices.Watch,
		tweak: func(o *metav1.ListOptions) { o.LabelSelector = servedSlices },
		into:  newFeed(c, c.Slice, into.Slices, first.expect(resourceSlices)),
	}, {
		name: "nodes", example: &corev1.Node{}, list: lists(nodes.List), watch: nodes.Watch,
		tweak: func(o *metav1.ListOptions) { o.FieldSelector = own },
		into:  newFeed(c, c.OnlyNode(nodeName), into.Nodes, first.expect("nodes")),
	}, {
		name: "servicecidrs", example: &networkingv1.ServiceCIDR{}, list: lists(ranges.List), watch: ranges.Watch,
		tweak:    func(*metav1.ListOptions) {},
		optional: true, without: "packets to unallocated cluster IPs are not dropped",
		into: newFeed(c, c.ServiceCIDR, into.ServiceCIDRs, first.expectOptional("servicecidrs")),
	}}
}
