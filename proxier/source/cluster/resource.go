package cluster

import (
	"context"
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
