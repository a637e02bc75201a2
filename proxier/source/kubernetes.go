package source

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Pauses between attempts, as client-go's own reflectors make them: they protect an API server to which thousands of
// nodes come back at once. What is denied again and again will be for long, so it is asked for less often.
const (
	firstPause   = 800 * time.Millisecond
	longestPause = 30 * time.Second
	calmPeriod   = 2 * time.Minute // without trouble, after which pauses are short again
	deniedPause  = 5 * time.Minute
	manyDenials  = 6
)

// KubernetesOptions are the parts of a Kubernetes source; all must be set.
type KubernetesOptions struct {
	Client   kubernetes.Interface
	NodeName string
	Store    *state.Store
	Log      *slog.Logger
}

// Kubernetes reads Services, EndpointSlices, ServiceCIDRs and the own Node from an API server.
type Kubernetes struct {
	client    kubernetes.Interface
	log       *slog.Logger
	outages   *outages
	resources []resource
	first     *firstLists
}

// NewKubernetes returns a source that does nothing until Run.
func NewKubernetes(o KubernetesOptions) *Kubernetes {
	k := &Kubernetes{client: o.Client, log: o.Log, outages: newOutages(o.Log), first: newFirstLists()}
	c, into := newConverter(), newSinks(o.Store)
	k.resources = []resource{
		k.services(c, into.services),
		k.slices(c, into.slices),
		k.node(c, into.nodes, o.NodeName),
		k.serviceCIDRs(c, into.serviceCIDRs),
	}
	return k
}

// Synced is closed when every resource has delivered its first complete list, or, for one that the proxy can do
// without, was denied.
func (k *Kubernetes) Synced() <-chan struct{} { return k.first.done }

// Run lists and watches until the context ends. Failures are logged and tried again; the store keeps what it has.
func (k *Kubernetes) Run(ctx context.Context) error {
	// The outages tell people what client-go's own messages, one for each attempt, would bury.
	quiet := logr.FromSlogHandler(k.log.Handler()).V(4)
	ctx = klog.NewContext(ctx, quiet)
	var running sync.WaitGroup
	for _, r := range k.resources {
		running.Go(func() { k.reflect(ctx, r) })
	}
	running.Wait()
	return nil
}

// reflect keeps one resource in step. The loop around the reflector is ours because its own hands every single failure
// to a global error handler.
func (k *Kubernetes) reflect(ctx context.Context, r resource) {
	ticking := interruptibleClock{done: ctx.Done()}
	logger := klog.FromContext(ctx)
	reflector := cache.NewReflectorWithOptions(k.listWatch(r), r.example, r.into, cache.ReflectorOptions{
		Name: r.name, Clock: ticking, Logger: &logger,
	})
	pauses := wait.Backoff{Duration: firstPause, Cap: longestPause, Steps: 16, Factor: 2, Jitter: 1}
	denials := 0
	attempt := func(ctx context.Context) (bool, error) {
		err := reflector.ListAndWatchWithContext(ctx)
		if err != nil && ctx.Err() == nil {
			k.failed(r, err)
		}
		if !r.optional || !denied(err) {
			denials = 0
			return false, nil
		}
		if denials++; denials > manyDenials {
			<-ticking.After(deniedPause)
		}
		return false, nil
	}
	// Until ends with the context only, so its error says nothing that the caller does not know.
	_ = pauses.DelayWithReset(ticking, calmPeriod).Until(ctx, true, true, attempt)
}

// failed notes that a resource could not be listed or watched.
func (k *Kubernetes) failed(r resource, err error) {
	switch {
	case r.optional && denied(err):
		k.outages.failed(r.name, err, "going on without, asking again every few minutes: "+r.without)
		k.first.arrived(r.name)
	case k.first.waitsFor(r.name):
		k.outages.failed(r.name, err, "nothing is programmed before the first complete list; trying again")
	default:
		k.outages.failed(r.name, err, "what is known stays in force; trying again, with pauses of up to a minute")
	}
}

// denied tells an API server that does not have a resource, or does not show it to us, from one that is in trouble.
func denied(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

// listWatch adds to the resource's calls its selectors and what the outages need to know.
func (k *Kubernetes) listWatch(r resource) cache.ListerWatcher {
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			r.tweak(&o)
			return r.list(ctx, o)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			r.tweak(&o)
			w, err := r.watch(ctx, o)
			switch {
			case err == nil:
				k.outages.works(r.name)
			case utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err):
				k.failed(r, err) // the reflector keeps these to itself and tries again; all others it returns
			}
			return w, err
		},
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, k.client)
}

// firstLists knows which resources have not delivered their first complete list.
type firstLists struct {
	mu      sync.Mutex
	missing map[string]struct{}
	done    chan struct{}
}

func newFirstLists() *firstLists {
	return &firstLists{missing: map[string]struct{}{}, done: make(chan struct{})}
}

// expect adds a resource and returns the function that says it arrived.
func (f *firstLists) expect(resource string) (arrived func()) {
	f.missing[resource] = struct{}{}
	return func() { f.arrived(resource) }
}

func (f *firstLists) arrived(resource string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, waits := f.missing[resource]; !waits {
		return
	}
	delete(f.missing, resource)
	if len(f.missing) == 0 {
		close(f.done)
	}
}

func (f *firstLists) waitsFor(resource string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, waits := f.missing[resource]
	return waits
}

// interruptibleClock ends a reflector's pauses when its context ends; client-go sleeps through them.
type interruptibleClock struct {
	clock.RealClock
	done <-chan struct{}
}

// After delivers after d or when the work is over.
func (c interruptibleClock) After(d time.Duration) <-chan time.Time {
	over := make(chan time.Time, 1)
	go func() {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-c.done:
		}
		over <- time.Now()
	}()
	return over
}
