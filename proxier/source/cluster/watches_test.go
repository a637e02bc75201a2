package cluster

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
)

// listed replaces the lists of Services by one that the test makes.
func listed(client *fake.Clientset, list func(o metav1.ListOptions) *corev1.ServiceList) {
	client.PrependReactor("list", "services", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, list(a.(clienttesting.ListActionImpl).ListOptions), nil
	})
}

func serviceList(version string, names ...string) *corev1.ServiceList {
	l := &corev1.ServiceList{ListMeta: metav1.ListMeta{ResourceVersion: version}}
	for _, name := range names {
		s := sourcetest.Service(func(o *corev1.Service) { o.Name, o.ResourceVersion = name, version })
		if name == "kubernetes" {
			s.Namespace = metav1.NamespaceDefault
		}
		l.Items = append(l.Items, *s)
	}
	return l
}

// current is a list that the test changes while the source runs.
type current struct {
	atomic.Pointer[corev1.ServiceList]
}

func (c *current) list(metav1.ListOptions) *corev1.ServiceList { return c.Load().DeepCopy() }

// serving returns a client that lists the Services of now, which the test may replace.
func serving(first *corev1.ServiceList) (now *current, client *fake.Clientset) {
	now, client = new(current), fake.NewClientset()
	now.Store(first)
	listed(client, now.list)
	return now, client
}

// TestListsThatAreNotUsed: nothing is removed because of a list that no working cluster sends.
func TestListsThatAreNotUsed(t *testing.T) {
	partial := serviceList("20", "kubernetes")
	partial.RemainingItemCount = new(int64)
	*partial.RemainingItemCount = 1
	for name, bad := range map[string]*corev1.ServiceList{
		"empty, without a version":       serviceList(""),
		"empty, with a version":          serviceList("20"),
		"without the API server's own":   serviceList("20", "other"),
		"objects remain, and no pointer": partial,
	} {
		inBubble(t, name, func(t *testing.T) { // it waits for client-go to try again
			now, client := serving(serviceList("10", "kubernetes", "web"))
			services := watched(client, "services")
			store, lines := runKubernetes(t, client)
			now.Store(bad)
			w, before := <-services, tried(client, "list", "services")
			e := expiredEvent()
			w.Error(e.Object)
			sourcetest.Eventually(t, "the list is tried twice", func() bool { return tried(client, "list", "services") > before+1 })
			if !sourcetest.HasService(store, "shop", "web", 0) {
				t.Error("the list was used")
			}
			if got := lines.Lines("level=WARN", "it is not used", "known objects stay in force"); len(got) != 1 {
				t.Errorf("%d lines about it: %q", len(got), got)
			}
			now.Store(serviceList("30", "kubernetes"))
			sourcetest.Eventually(t, "a plausible list is used", func() bool { return sourcetest.LacksService(store, "shop", "web") })
		})
	}
}

// TestDeletedServiceOfTheServer: an event that deletes the Service of the API server is believed.
func TestDeletedServiceOfTheServer(t *testing.T) { synctest.Test(t, testDeletedServiceOfTheServer) } // it waits for client-go to try again

func testDeletedServiceOfTheServer(t *testing.T) {
	now, client := serving(serviceList("10", "kubernetes", "web"))
	services := watched(client, "services")
	store, _ := runKubernetes(t, client)
	w := <-services
	w.Delete(&serviceList("11", "kubernetes").Items[0])
	sourcetest.Eventually(t, "the Service is gone", func() bool { return sourcetest.LacksService(store, "default", "kubernetes") })
	now.Store(serviceList("12"))
	w.Error(expiredEvent().Object)
	sourcetest.Eventually(t, "an empty list is used", func() bool { return sourcetest.LacksService(store, "shop", "web") })
}

// TestNewServer: a start waits for the Service of the API server, but not for ever.
func TestNewServer(t *testing.T) {
	for name, list := range map[string]*corev1.ServiceList{
		"it comes": serviceList("20", "kubernetes", "web"), "it never comes": serviceList("20", "web"),
	} {
		inBubble(t, name, func(t *testing.T) { // what counts may not pass before the test looks
			now, client := serving(serviceList("10"))
			k, store, lines := newKubernetes(t, client)
			k.plausible.wait = 3 * time.Second
			sourcetest.Run(t, k.Run)
			sourcetest.Eventually(t, "the reason is logged", func() bool {
				return len(lines.Lines("level=WARN", "lacks the Service default/kubernetes", "the kernel stays as it is")) > 0
			})
			if got := fmt.Sprint(k.Missing()); sourcetest.Synced(k) || got != "[endpointslices services]" {
				t.Errorf("synced: %v, missing: %s", sourcetest.Synced(k), got)
			}
			now.Store(list)
			sourcetest.Eventually(t, "synced", func() bool { return sourcetest.Synced(k) })
			if !sourcetest.HasService(store, "shop", "web", 0) {
				t.Error("the Service is missing")
			}
		})
	}
}

// TestServerWentBack: the history of the API server ends before what the proxy has seen. It lists again.
func TestServerWentBack(t *testing.T) { synctest.Test(t, testServerWentBack) } // it waits for client-go to try again

func testServerWentBack(t *testing.T) {
	now, client := serving(serviceList("10", "kubernetes", "web"))
	services := watched(client, "services")
	store, lines := runKubernetes(t, client)
	w := <-services
	w.Modify(&serviceList("12", "web").Items[0])
	now.Store(serviceList("7", "kubernetes", "restored"))
	w.Stop()
	sourcetest.Eventually(t, "the restored state", func() bool {
		return sourcetest.LacksService(store, "shop", "web") && sourcetest.HasService(store, "shop", "restored", 0)
	})
	if got := lines.Lines("gone back to an older state", "version=7", "before=12"); len(got) != 1 {
		t.Errorf("%d lines about it: %q", len(got), got)
	}
}

// TestListAgainAfterOutage: a server that came back may have another history that is longer than the old one. Everything
// is read again, at a time that is different on each node.
func TestListAgainAfterOutage(t *testing.T) { synctest.Test(t, testListAgainAfterOutage) } // the list waits for the event

func testListAgainAfterOutage(t *testing.T) {
	_, client := serving(serviceList("10", "kubernetes", "web"))
	k, _, _ := newKubernetes(t, client)
	s := newWatches(k.resources[0], k.log)
	s.check, s.works, s.confirm = k.plausible.check, func() {}, 2*time.Second
	open := watched(client, "services")
	ctx := t.Context()
	s.lost = true
	w, err := s.watch(ctx, metav1.ListOptions{ResourceVersion: "10"})
	if err != nil {
		t.Fatal(err)
	}
	(<-open).Add(&serviceList("11", "late").Items[0])
	if e := <-w.ResultChan(); e.Type != watch.Added {
		t.Errorf("got %v before the list", e)
	}
	if e := <-w.ResultChan(); e.Type != watch.Error {
		t.Errorf("got %v, want that the watch expires", e)
	}
	w.Stop()
	due, late := s.expireAt, s.lost
	if _, err := s.list(ctx, metav1.ListOptions{}); err != nil || s.lost || !s.expireAt.IsZero() {
		t.Errorf("after a list: %v, lost %v, expires %v", err, s.lost, s.expireAt)
	}

	// The same with a list that the server streams. It is the one that is due, so it does not expire.
	s.lost, s.expireAt = late, due
	if w, err = s.watch(ctx, metav1.ListOptions{SendInitialEvents: new(true)}); err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	stream := <-open
	synctest.Wait()
	select {
	case e := <-w.ResultChan():
		t.Fatalf("got %v before the list", e)
	default:
	}
	stream.Action(watch.Bookmark, endOfList().Object)
	if e := <-w.ResultChan(); e.Type != watch.Bookmark || s.lost || !s.expireAt.IsZero() {
		t.Errorf("after a streamed list: %v, lost %v, expires %v", e, s.lost, s.expireAt)
	}
}

// TestHangingCheck: a list that cannot be checked in time is not used, and the reflector tries again.
func TestHangingCheck(t *testing.T) { synctest.Test(t, testHangingCheck) }

func testHangingCheck(t *testing.T) {
	_, client := serving(serviceList("10", "kubernetes", "web"))
	k, _, _ := newKubernetes(t, client)
	s := newWatches(k.resources[0], k.log)
	s.works = func() {}
	s.check = func(ctx context.Context, _ resource) error {
		<-ctx.Done()
		return ctx.Err()
	}
	open := watched(client, "services")
	w, err := s.watch(t.Context(), metav1.ListOptions{SendInitialEvents: new(true)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	began := time.Now()
	(<-open).Action(watch.Bookmark, endOfList().Object)
	if e := <-w.ResultChan(); e.Type != watch.Error || time.Since(began) != AnswerPatience {
		t.Errorf("got %v after %v", e, time.Since(began))
	}
}

// TestReopeningIsSpread: watches that are cut off at once are opened less and less often, at times that differ.
func TestReopeningIsSpread(t *testing.T) {
	s := newWatches(resource{}, nil)
	var pauses []time.Duration
	for range 12 {
		pauses = append(pauses, s.pauses.Step())
	}
	if pauses[0] < firstReopening || pauses[0] > 2*firstReopening || pauses[11] < lastReopening || pauses[11] > 2*lastReopening {
		t.Errorf("pauses %v", pauses)
	}
	if pauses[10] == pauses[11] {
		t.Errorf("the same pause on all nodes: %v", pauses)
	}
	s.opened = time.Now().Add(-shortWatch)
	if err := s.pause(context.Background()); err != nil {
		t.Error(err)
	}
	if p := s.pauses.Step(); p > 2*firstReopening {
		t.Errorf("the pause after a long watch is %v", p)
	}
}

// streamed is a watch that streams a list.
func streamed(complete func() error) (from chan watch.Event, out chan watch.Event, v *supervisor) {
	from, out = make(chan watch.Event), make(chan watch.Event, 8)
	return from, out, &supervisor{from: from, out: out, stop: make(chan struct{}), listing: true, complete: complete}
}

func endOfList() watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: sourcetest.Service(func(o *corev1.Service) {
		o.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
	})}
}

// TestStreamedList: the end of a streamed list that is not plausible does not reach the reflector.
func TestStreamedList(t *testing.T) {
	for name, fault := range map[string]error{"plausible": nil, "not plausible": implausible("injected")} {
		t.Run(name, func(t *testing.T) {
			from, out, v := streamed(func() error { return fault })
			go func() {
				from <- watch.Event{Type: watch.Added, Object: sourcetest.Service()}
				from <- endOfList()
				close(from)
			}()
			v.run(time.Time{}, 0)
			close(out)
			var got []watch.EventType
			for e := range out {
				got = append(got, e.Type)
			}
			want := "[ADDED BOOKMARK]"
			if fault != nil {
				want = "[ADDED ERROR]"
			}
			if fmt.Sprint(got) != want {
				t.Errorf("the reflector gets %v, want %s", got, want)
			}
		})
	}
}

// TestWatchEnds: a watch ends at the agreed time although the server has gone without a word.
func TestWatchEnds(t *testing.T) {
	_, out, v := streamed(nil)
	v.listing = false
	v.run(time.Time{}, time.Millisecond)
	if len(out) > 0 {
		t.Errorf("the reflector gets %v", <-out)
	}
}
