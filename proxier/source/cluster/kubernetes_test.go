package cluster

import (
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/source/convert"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// The fake client only injects faults. The end-to-end tests use a real API server.

func newKubernetes(t *testing.T, client *fake.Clientset) (*Source, *state.Store, *sourcetest.Journal) {
	t.Helper()
	log, lines := sourcetest.NewLog(t)
	store := state.NewStore()
	k := New(Options{Client: client, NodeName: "n1", Store: store, Log: log})
	k.plausible.wait = 0 // the fake has no Service of its own
	return k, store, lines
}

// runKubernetes runs a source and marks the store as synced when the source is.
func runKubernetes(t *testing.T, client *fake.Clientset) (*state.Store, *sourcetest.Journal) {
	t.Helper()
	k, store, lines := newKubernetes(t, client)
	sourcetest.Run(t, k.Run)
	sourcetest.Eventually(t, "the source is synced", func() bool { return sourcetest.Synced(k) })
	store.MarkSynced()
	return store, lines
}

// tried counts the calls of a verb on a resource. Two kinds of lists do not count: of one object, which asks for the
// version of the server, and of the Service default/kubernetes, which asks whether the server is that of a cluster.
func tried(client *fake.Clientset, verb, resource string) int {
	n := 0
	for _, a := range client.Actions() {
		l, list := a.(clienttesting.ListActionImpl)
		question := list && (l.ListOptions.Limit == 1 || l.ListOptions.FieldSelector == "metadata.name=kubernetes")
		if a.Matches(verb, resource) && !question {
			n++
		}
	}
	return n
}

func ownNode() *corev1.Node {
	return sourcetest.Node("n1", func(o *corev1.Node) {
		o.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}}
	})
}

func TestKubernetesDelivers(t *testing.T) {
	client := fake.NewClientset(sourcetest.Service(), sourcetest.Slice(), ownNode(), sourcetest.Node("n2"), sourcetest.Ranges("kubernetes", "10.96.0.0/12"))
	store, _ := runKubernetes(t, client)
	if !sourcetest.HasService(store, "shop", "web", 1) {
		t.Error("the Service or its endpoint is missing")
	}
	env := store.Environment()
	if env.Node == nil || env.Node.Name != "n1" || len(env.ServiceCIDRs) != 1 {
		t.Errorf("environment %+v, want Node n1 and one range", env)
	}
}

// TestKubernetesAsksForWhatItNeeds: selectors keep the API server from sending objects that this node ignores.
func TestKubernetesAsksForWhatItNeeds(t *testing.T) {
	client := fake.NewClientset()
	runKubernetes(t, client)
	for _, tt := range []struct{ resource, label, field string }{
		{"services", "!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None"},
		{"endpointslices", "!service.kubernetes.io/headless", ""},
		{"nodes", "", "metadata.name=n1"},
		{"servicecidrs", "", ""},
	} {
		sourcetest.Eventually(t, tt.resource+" are listed and watched", func() bool {
			return tried(client, "list", tt.resource) > 0 && tried(client, "watch", tt.resource) > 0
		})
		for _, a := range client.Actions() {
			if l, ok := a.(clienttesting.ListAction); ok && a.Matches("list", tt.resource) {
				got := l.GetListRestrictions()
				if got.Labels.String() != tt.label || got.Fields.String() != tt.field {
					t.Errorf("list %s: labels %q, fields %q", tt.resource, got.Labels, got.Fields)
				}
			}
			if w, ok := a.(clienttesting.WatchAction); ok && a.Matches("watch", tt.resource) {
				got := w.GetWatchRestrictions()
				if got.Labels.String() != tt.label || got.Fields.String() != tt.field {
					t.Errorf("watch %s: labels %q, fields %q", tt.resource, got.Labels, got.Fields)
				}
			}
		}
	}
}

// TestKubernetesIsNotSyncedByHalf: each resource in turn fails at first. The source is not synced before it works.
func TestKubernetesIsNotSyncedByHalf(t *testing.T) {
	for _, resource := range []string{"services", "endpointslices", "nodes", "servicecidrs"} {
		inBubble(t, resource, func(t *testing.T) {
			client := fake.NewClientset(sourcetest.Service(), sourcetest.Slice())
			var works atomic.Bool
			client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				if works.Load() {
					return false, nil, nil
				}
				return true, nil, errors.New("connection reset by peer")
			})
			k, _, lines := newKubernetes(t, client)
			k.wait = time.Hour
			sourcetest.Run(t, k.Run)
			sourcetest.Eventually(t, "the list was tried twice and all others are watched", func() bool {
				watched := 0
				for _, other := range []string{"services", "endpointslices", "nodes", "servicecidrs"} {
					watched += min(1, tried(client, "watch", other))
				}
				return tried(client, "list", resource) >= 2 && watched == 3
			})
			if sourcetest.Synced(k) {
				t.Fatal("synced although a list is missing")
			}
			works.Store(true)
			sourcetest.Eventually(t, "synced", func() bool { return sourcetest.Synced(k) })
			next := "until the first list is complete"
			if resource == "servicecidrs" {
				next = "starts without this one"
			}
			if got := lines.Lines("cannot read", "resource="+resource, next); len(got) != 1 {
				t.Errorf("%d lines about one outage: %q", len(got), got)
			}
			sourcetest.Eventually(t, "the end of the outage is logged", func() bool { return len(lines.Lines("can be read again")) == 1 })
		})
	}
}

// TestKubernetesWithoutServiceCIDRs: an old API server, or RBAC without the rule, causes one log line.
func TestKubernetesWithoutServiceCIDRs(t *testing.T) {
	gr := schema.GroupResource{Group: "networking.k8s.io", Resource: "servicecidrs"}
	for name, fault := range map[string]error{
		"forbidden": apierrors.NewForbidden(gr, "", errors.New("no RBAC")),
		"absent":    apierrors.NewGenericServerResponse(http.StatusNotFound, "list", gr, "", "", 0, true),
	} {
		inBubble(t, name, func(t *testing.T) {
			client := fake.NewClientset(sourcetest.Service())
			client.PrependReactor("list", "servicecidrs", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, fault
			})
			store, lines := runKubernetes(t, client)
			if !sourcetest.HasService(store, "shop", "web", 0) {
				t.Error("the Service is missing")
			}
			sourcetest.Eventually(t, "it is logged", func() bool { return len(lines.Lines("cannot read", "servicecidrs", "continuing without it")) == 1 })
			before := tried(client, "list", "servicecidrs")
			sourcetest.Eventually(t, "it is tried once more", func() bool { return tried(client, "list", "servicecidrs") > before })
			if got := lines.Lines("cannot read"); len(got) != 1 {
				t.Errorf("%d lines: %q", len(got), got)
			}
		})
	}
}

// TestKubernetesStartsWithoutServiceCIDRs: an API server that fails to list an optional resource holds up the start for
// a while only. Its objects are taken when they arrive.
func TestKubernetesStartsWithoutServiceCIDRs(t *testing.T) {
	synctest.Test(t, testKubernetesStartsWithoutServiceCIDRs)
}

func testKubernetesStartsWithoutServiceCIDRs(t *testing.T) {
	client := fake.NewClientset(sourcetest.Service(), sourcetest.Ranges("kubernetes", "10.96.0.0/12"))
	var works atomic.Bool
	client.PrependReactor("list", "servicecidrs", func(clienttesting.Action) (bool, runtime.Object, error) {
		return !works.Load(), nil, apierrors.NewInternalError(errors.New("injected: cannot decode an object"))
	})
	k, store, lines := newKubernetes(t, client)
	k.wait = 50 * time.Millisecond
	sourcetest.Run(t, k.Run)
	sourcetest.Eventually(t, "the source is synced", func() bool { return sourcetest.Synced(k) })
	if !sourcetest.HasService(store, "shop", "web", 0) {
		t.Error("synced before the Service was there")
	}
	if got := lines.Lines("starting without a resource", "resource=servicecidrs"); len(got) != 1 {
		t.Errorf("%d lines: %q", len(got), got)
	}
	works.Store(true)
	sourcetest.Eventually(t, "the range is taken", func() bool { return len(store.Environment().ServiceCIDRs) == 1 })
}

// watched replaces the watch of a resource by one that the test controls.
func watched(client *fake.Clientset, resource string) <-chan *watch.FakeWatcher {
	open := make(chan *watch.FakeWatcher, 8)
	client.PrependWatchReactor(resource, func(clienttesting.Action) (bool, watch.Interface, error) {
		w := watch.NewFake()
		open <- w
		return true, w, nil
	})
	return open
}

func remove(t *testing.T, client *fake.Clientset, resource schema.GroupVersionResource, name string) {
	t.Helper()
	if err := client.Tracker().Delete(resource, "shop", name); err != nil {
		t.Fatal(err)
	}
}

// TestKubernetesRelist: a watch that was interrupted for too long ends with "expired". Objects that were deleted
// meanwhile are missing from the next list. Objects that did not change must not cause a pass.
func TestKubernetesRelist(t *testing.T) { synctest.Test(t, testKubernetesRelist) } // it waits for client-go to try again

func testKubernetesRelist(t *testing.T) {
	gone := sourcetest.Service(func(o *corev1.Service) { o.Name = "gone" })
	goneSlice := sourcetest.Slice(func(o *discoveryv1.EndpointSlice) { o.Name = "web-gone" })
	client := fake.NewClientset(sourcetest.Service(), gone, sourcetest.Slice(), goneSlice, ownNode())
	services, slices, nodes := watched(client, "services"), watched(client, "endpointslices"), watched(client, "nodes")
	store, lines := runKubernetes(t, client)
	if !sourcetest.HasService(store, "shop", "gone", 0) || !sourcetest.HasService(store, "shop", "web", 2) {
		t.Fatal("the objects are missing at the start")
	}
	first := map[string]*watch.FakeWatcher{"services": <-services, "endpointslices": <-slices, "nodes": <-nodes}
	sourcetest.Applied(t, store)
	remove(t, client, corev1.SchemeGroupVersion.WithResource("services"), "gone")
	remove(t, client, discoveryv1.SchemeGroupVersion.WithResource("endpointslices"), "web-gone")
	if err := client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "n1"); err != nil {
		t.Fatal(err)
	}
	expired := apierrors.NewResourceExpired("too old resource version").ErrStatus
	for _, w := range first {
		w.Error(&expired)
	}
	sourcetest.Eventually(t, "what vanished is gone", func() bool {
		return sourcetest.LacksService(store, "shop", "gone") && sourcetest.HasService(store, "shop", "web", 1) && store.Environment().Node == nil
	})
	<-services // the watch has started again
	sourcetest.Applied(t, store)

	second := sourcetest.Slice(func(o *discoveryv1.EndpointSlice) { o.Name = "web-second" })
	(<-slices).Add(second)
	sourcetest.Eventually(t, "the new watch delivers", func() bool { return sourcetest.HasService(store, "shop", "web", 2) })
	c, _ := store.Pending()
	if want := []state.Name{{Namespace: "shop", Name: "web"}}; !cmp.Equal(c.Services, want) {
		t.Errorf("changed: %v, want only web", c.Services)
	}
	if got := lines.Lines("level=WARN"); len(got) > 0 {
		t.Errorf("an expired watch is no outage: %q", got)
	}
}

// TestKubernetesClosedWatch: an API server closes every watch after some minutes. The source watches again without a
// list.
func TestKubernetesClosedWatch(t *testing.T) { synctest.Test(t, testKubernetesClosedWatch) }

func testKubernetesClosedWatch(t *testing.T) {
	client := fake.NewClientset(sourcetest.Service())
	services := watched(client, "services")
	store, lines := runKubernetes(t, client)
	w := <-services
	w.Modify(sourcetest.Service(func(o *corev1.Service) { o.Spec.ExternalIPs = []string{"192.0.2.1"} }))
	w.Stop()
	(<-services).Add(sourcetest.Service(func(o *corev1.Service) { o.Name = "new" }))
	sourcetest.Eventually(t, "both watches delivered", func() bool {
		svc, _ := store.Service(state.Name{Namespace: "shop", Name: "web"})
		return sourcetest.HasService(store, "shop", "new", 0) && svc != nil && len(svc.ExternalIPs) == 1
	})
	if n := tried(client, "list", "services"); n != 1 {
		t.Errorf("listed %d times, want once", n)
	}
	if got := lines.Lines("level=WARN"); len(got) > 0 {
		t.Errorf("a closed watch is no outage: %q", got)
	}
}

// TestKubernetesServiceStopsBeingServed: a Service that becomes headless no longer matches the field selector, so the
// watch reports a deletion. A Service that becomes ExternalName keeps its cluster IP, so the watch reports a change.
// Both end it.
func TestKubernetesServiceStopsBeingServed(t *testing.T) {
	for name, change := range map[string]func(*watch.FakeWatcher){
		"deleted": func(w *watch.FakeWatcher) { w.Delete(sourcetest.Service()) },
		"headless": func(w *watch.FakeWatcher) {
			w.Modify(sourcetest.Service(func(o *corev1.Service) { o.Spec.ClusterIP, o.Spec.ClusterIPs = "None", []string{"None"} }))
		},
		"ExternalName": func(w *watch.FakeWatcher) {
			w.Modify(sourcetest.Service(func(o *corev1.Service) { o.Spec.Type = corev1.ServiceTypeExternalName }))
		},
		"of another proxy": func(w *watch.FakeWatcher) {
			w.Modify(sourcetest.Service(func(o *corev1.Service) { o.Labels = map[string]string{convert.LabelProxyName: "x"} }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset(sourcetest.Service(), sourcetest.Slice())
			services := watched(client, "services")
			store, _ := runKubernetes(t, client)
			if !sourcetest.HasService(store, "shop", "web", 1) {
				t.Fatal("the Service is missing")
			}
			w := <-services
			change(w)
			sourcetest.Eventually(t, "the Service is gone", func() bool { return sourcetest.LacksService(store, "shop", "web") })
			w.Add(sourcetest.Service())
			sourcetest.Eventually(t, "the Service is back with its endpoints", func() bool { return sourcetest.HasService(store, "shop", "web", 1) })
		})
	}
}

// TestFeedTombstone: a deletion may have only the key of the object.
func TestFeedTombstone(t *testing.T) {
	k, store, _ := newKubernetes(t, fake.NewClientset())
	objects := map[string]runtime.Object{
		"shop/web": sourcetest.Service(), "shop/web-x7k2p": sourcetest.Slice(), "n1": ownNode(), "kubernetes": sourcetest.Ranges("kubernetes", "10.96.0.0/12"),
	}
	into := map[string]cache.ReflectorStore{}
	for i, key := range []string{"shop/web", "shop/web-x7k2p", "n1", "kubernetes"} {
		into[key] = k.resources[i].into
		if err := into[key].Add(objects[key]); err != nil {
			t.Fatal(err)
		}
	}
	if env := store.Environment(); !sourcetest.HasService(store, "shop", "web", 1) || env.Node == nil || len(env.ServiceCIDRs) != 1 {
		t.Fatal("an object is missing at the start")
	}
	for key, feed := range into {
		if err := feed.Delete(cache.DeletedFinalStateUnknown{Key: key}); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	env := store.Environment()
	if !sourcetest.LacksService(store, "shop", "web") || env.Node != nil || len(env.ServiceCIDRs) != 0 {
		t.Error("an object is still there after its tombstone")
	}
	store.SetService(&state.Service{Name: state.Name{Namespace: "shop", Name: "web"}}, nil)
	if !sourcetest.HasService(store, "shop", "web", 0) {
		t.Error("the slice is still there after its tombstone")
	}
}

// TestFeedRejectsOtherTypes: an object of a wrong type is an error, not a panic.
func TestFeedRejectsOtherTypes(t *testing.T) {
	k, _, _ := newKubernetes(t, fake.NewClientset())
	for _, r := range k.resources {
		if r.into.Add(&metav1.Status{}) == nil || r.into.Replace([]any{&metav1.Status{}}, "") == nil || r.into.Delete(7) == nil {
			t.Errorf("%s: accepted an object of another type", r.name)
		}
		if _, err := r.into.(cache.TransformingStore).Transformer()(&metav1.Status{}); err == nil {
			t.Errorf("%s: transformed an object of another type", r.name)
		}
	}
	if sourcetest.Synced(k) {
		t.Error("a rejected list counts as delivered")
	}
}

func TestOutagesAreLoggedOnce(t *testing.T) {
	refused := errors.New("connection refused")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "x"}, "", nil)
	for _, tt := range []struct {
		name        string
		do          func(*outages)
		warn, again int
	}{
		{"one resource, many attempts", func(o *outages) {
			for range 5 {
				o.failed("services", refused, "")
			}
		}, 1, 0},
		{"the same server for all", func(o *outages) {
			o.failed("services", refused, "")
			o.failed("nodes", errors.New("timeout"), "")
			o.works("services")
			o.works("nodes")
		}, 1, 1},
		{"each denial tells something else", func(o *outages) {
			for range denialsToLog + 2 {
				o.failed("services", forbidden, "")
				o.failed("nodes", forbidden, "")
			}
			o.works("services")
			o.works("nodes")
		}, 2, 1},
		{"a server that has just started", func(o *outages) {
			for range denialsToLog - 1 {
				o.failed("services", forbidden, "")
			}
			o.works("services")
		}, 0, 0},
		{"a server that restarts", func(o *outages) {
			o.failed("services", refused, "")
			o.failed("services", forbidden, "")
			o.works("services")
		}, 1, 1},
		{"the next outage", func(o *outages) {
			o.failed("services", refused, "")
			o.works("services")
			o.failed("services", forbidden, "")
			o.works("services")
		}, 1, 1},
		{"twice", func(o *outages) {
			for range 2 {
				o.failed("services", refused, "")
				o.works("services")
			}
		}, 2, 2},
		{"beside a resource that is always denied", func(o *outages) {
			for range 2 {
				for range denialsToLog {
					o.lacks("servicecidrs", forbidden, "")
				}
				o.failed("services", refused, "")
				o.works("services")
			}
		}, 3, 2},
		{"a resource that is denied again after an outage", func(o *outages) {
			o.lacks("servicecidrs", forbidden, "")
			o.failed("services", refused, "")
			o.failed("servicecidrs", refused, "")
			o.works("services")
			o.lacks("servicecidrs", forbidden, "")
		}, 1, 1},
		{"never", func(o *outages) { o.works("services") }, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log, lines := sourcetest.NewLog(t)
			tt.do(newOutages(log, nil))
			if warn, again := len(lines.Lines("cannot read")), len(lines.Lines("can be read again")); warn != tt.warn || again != tt.again {
				t.Errorf("%d outages and %d ends logged, want %d and %d", warn, again, tt.warn, tt.again)
			}
		})
	}
}

// inBubble runs a subtest in which time passes only while everyone waits: no pause of client-go is over too late or too
// early, however slow the machine is.
func inBubble(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}
