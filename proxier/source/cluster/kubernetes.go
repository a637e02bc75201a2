package cluster

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/verdict-proxy/verdict/proxier/source/sink"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// The pauses between attempts are those of client-go's reflectors. They protect an API server to which thousands of
// nodes return at the same time. A resource that is denied many times in a row is asked for less often.
const (
	firstPause   = 800 * time.Millisecond
	longestPause = 30 * time.Second
	calmPeriod   = 2 * time.Minute // after so long without a failure, pauses are short again
	deniedPause  = 5 * time.Minute
	manyDenials  = 6
)

// optionalWait is how long the start waits for optional resources once all others have arrived.
const optionalWait = 10 * time.Second

// waitingAfter is how long the first lists may take before that is logged. With 50,000 Services they take a few seconds.
const waitingAfter = 10 * time.Second

// Options are the parts of a Kubernetes source.
type Options struct {
	Client   kubernetes.Interface
	NodeName string
	Store    *state.Store
	Log      *slog.Logger
	// Report is called after each list, opened watch and failure, with whether a resource can be read. It may be nil.
	Report func(resource string, up bool)
}

// Source reads Services, EndpointSlices, ServiceCIDRs and this node's Node object from an API server.
type Source struct {
	client    kubernetes.Interface
	log       *slog.Logger
	outages   *outages
	resources []resource
	synced    chan struct{}
	wait      time.Duration // for optional resources
	confirm   time.Duration // see confirmWithin
	plausible plausibility
}

// New returns a source that does nothing until Run.
func New(o Options) *Source {
	return &Source{
		client: o.Client, log: o.Log, outages: newOutages(o.Log, o.Report), synced: make(chan struct{}), wait: optionalWait, confirm: confirmWithin,
		resources: newResources(o.Client, o.NodeName, sink.New(o.Store)),
		plausible: plausibility{client: o.Client, store: o.Store, wait: newServerWait, lacks: sync.OnceValue(time.Now)},
	}
}

// Synced returns a channel that is closed when every resource has delivered its first complete list. An optional
// resource does not hold it up if the API server denies it, or if it does not arrive soon after the others.
func (k *Source) Synced() <-chan struct{} { return k.synced }

// Missing names the resources whose first complete list has not arrived, sorted.
func (k *Source) Missing() (names []string) {
	for _, r := range k.resources {
		if r.first.waits() {
			names = append(names, r.name)
		}
	}
	slices.Sort(names)
	return names
}

// Run lists and watches until the context ends. It logs failures and tries again. Until then the store keeps what it
// has.
func (k *Source) Run(ctx context.Context) error {
	// client-go logs every attempt. Those messages would hide the ones of outages, which are for the operator.
	quiet := logr.FromSlogHandler(k.log.Handler()).V(4)
	ctx = klog.NewContext(ctx, quiet)
	var running sync.WaitGroup
	for _, r := range k.resources {
		running.Go(func() { k.reflect(ctx, r) })
	}
	running.Go(func() { k.awaitFirst(ctx) })
	running.Go(func() { k.sayWaiting(ctx) })
	running.Wait()
	return nil
}

// sayWaiting logs that the start waits for the API server. An attempt that hangs takes a minute to fail.
func (k *Source) sayWaiting(ctx context.Context) {
	select {
	case <-k.synced:
	case <-ctx.Done():
	case <-time.After(waitingAfter):
		k.log.Warn("still waiting for the Kubernetes API; the rules in the kernel stay as an earlier process left them",
			"resources", k.Missing(), "after", waitingAfter)
	}
}

// awaitFirst waits for the first list of each resource. It waits for optional resources only for some time after all others
// have arrived. An API server that cannot list them, for example because it fails to decode one object, must not keep every
// node from serving. Their objects are taken when they arrive.
func (k *Source) awaitFirst(ctx context.Context) {
	for _, r := range k.resources {
		if r.optional {
			continue
		}
		select {
		case <-r.first.over:
		case <-ctx.Done():
			return
		}
	}
	patience, stop := context.WithTimeout(ctx, k.wait)
	defer stop()
	for _, r := range k.resources {
		select {
		case <-r.first.over:
			continue
		case <-patience.Done():
		}
		if ctx.Err() != nil {
			return
		}
		if r.first.waits() {
			k.log.Warn("starting without a resource that the Kubernetes API does not list; it is taken when it arrives",
				"resource", r.name, "after", k.wait, "meanwhile", r.without)
			r.first.arrived()
		}
	}
	close(k.synced)
}

// reflect lists and watches one resource. It calls the reflector in a loop of its own, because the loop of client-go
// passes every failure to a global error handler.
func (k *Source) reflect(ctx context.Context, r resource) {
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
	// Until returns only when the context has ended, and its error says just that.
	_ = pauses.DelayWithReset(ticking, calmPeriod).Until(ctx, true, true, attempt)
}

// failed records that a resource could not be listed or watched.
func (k *Source) failed(r resource, err error) {
	switch {
	case r.optional && denied(err):
		k.outages.lacks(r.name, err, "continuing without it and trying again every few minutes: "+r.without)
		r.first.arrived()
	case r.optional && r.first.waits():
		k.outages.failed(r.name, err, "trying again; if all other resources arrive, the proxy soon starts without this one")
	case r.first.waits():
		k.outages.failed(r.name, err, "trying again; the kernel stays as it is until the first list is complete")
	default:
		k.outages.failed(r.name, err, "trying again, with pauses of up to a minute; known objects stay in force")
	}
}

// denied reports whether the API server does not have a resource or does not let the proxy read it. Other errors mean
// that the server has a problem.
func denied(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err)
}

// listWatch reads a resource for a reflector.
func (k *Source) listWatch(r resource) cache.ListerWatcher {
	s := newWatches(r, k.log)
	s.check, s.works, s.confirm = k.plausible.check, func() { k.outages.works(r.name) }, k.confirm
	lw := &cache.ListWatch{
		ListWithContextFunc: s.list,
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			w, err := s.watch(ctx, o)
			if utilnet.IsConnectionRefused(err) || apierrors.IsTooManyRequests(err) {
				k.failed(r, err) // the reflector tries again after these errors, without returning them
			}
			return w, err
		},
	}
	return cache.ToListWatcherWithWatchListSemantics(lw, k.client)
}

// interruptibleClock ends the pauses of a reflector when its context ends. client-go would sleep until the pause is
// over.
type interruptibleClock struct {
	clock.RealClock
	done <-chan struct{}
}

// After delivers after d, or when the context ends.
func (c interruptibleClock) After(d time.Duration) <-chan time.Time {
	over := make(chan time.Time, 1)
	go func() {
		select {
		case <-time.After(d):
		case <-c.done:
		}
		over <- time.Now()
	}()
	return over
}
