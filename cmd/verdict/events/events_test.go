package events

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/source/cluster"
	"github.com/verdict-proxy/verdict/proxier/state"
)

var badService = state.Name{Namespace: "shop", Name: "web"}

// raiseFrom has one node raise what waits in its queue. It fails the test if the API server refuses something.
func raiseFrom(t *testing.T, client *fake.Clientset, node string, problems ...state.Problem) {
	t.Helper()
	store := state.NewStore()
	store.SetService(&state.Service{
		Name: badService, UID: state.ParseUID("6a3c1f5e-0b8d-4c57-9d0e-2f1a7b9c8d7e"), ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
	}, nil)
	e := New(client, node, store, slog.New(slog.DiscardHandler))
	e.Problems([]state.ObjectProblems{{Object: state.Object{Kind: "Service", Name: badService}, Problems: problems}})
	raiseAll(t, e)
}

// raiseAll raises what waits. It fails the test if the API server refuses something.
func raiseAll(t *testing.T, e *Recorder) {
	t.Helper()
	for n, ok := e.queue.pop(); ok; n, ok = e.queue.pop() {
		if err := e.raise(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
}

func manyProblems(n int) []state.Problem {
	l := state.ProblemList{Object: state.Object{Kind: "Service", Name: badService}}
	for i := range n {
		l.Add(fmt.Sprintf("spec.externalIPs[%d]", i), "%s is not an IP address", state.Quote(strings.Repeat("x", 1000)))
	}
	return l.Problems()
}

func raised(t *testing.T, client *fake.Clientset) []eventsv1.Event {
	t.Helper()
	list, err := client.EventsV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// TestOneEventForOneService: 250 problems are one Event, which costs one request.
func TestOneEventForOneService(t *testing.T) {
	client := fake.NewClientset()
	raiseFrom(t, client, "node-1", manyProblems(250)...)
	if n := len(client.Actions()); n != 1 {
		t.Errorf("%d requests, want 1: %v", n, client.Actions())
	}
	list := raised(t, client)
	if len(list) != 1 {
		t.Fatalf("%d Events, want 1", len(list))
	}
	e := list[0]
	for _, part := range []string{"spec.externalIPs[0]: ", "; spec.externalIPs[1]: ", "; and 24", " more", "first reported by node node-1"} {
		if !strings.Contains(e.Note, part) {
			t.Errorf("the Event has no %q: %s", part, e.Note)
		}
	}
	if len(e.Note) > maxNote || e.Reason != "NotHonored" || e.Regarding.UID != "6a3c1f5e-0b8d-4c57-9d0e-2f1a7b9c8d7e" {
		t.Errorf("%d bytes of Event, reason %s, UID %s", len(e.Note), e.Reason, e.Regarding.UID)
	}
}

// TestOneEventForAllNodes: what every node sees is one Event. A new problem is another one.
func TestOneEventForAllNodes(t *testing.T) {
	client := fake.NewClientset()
	for i := range 50 {
		raiseFrom(t, client, fmt.Sprint("node-", i), manyProblems(3)...)
	}
	list := raised(t, client)
	if len(list) != 1 || list[0].ReportingInstance != "node-0" {
		t.Errorf("%d Events, want one of node-0", len(list))
	}
	raiseFrom(t, client, "node-7", manyProblems(4)...)
	if list := raised(t, client); len(list) != 2 {
		t.Errorf("%d Events after a new problem, want 2", len(list))
	}
}

// TestOneEventWhereTextsDiffer: each node names its own address, its own numbers of pools and its own backoff. That is one
// Event, also when the problem comes again later, and another kind of problem is another one.
func TestOneEventWhereTextsDiffer(t *testing.T) {
	for _, tt := range []struct {
		what   string
		reason func(node int) string
	}{
		{"the node's address", func(n int) string {
			return fmt.Sprintf("frontend 192.168.%d.%d:30080/tcp would hide node port 30080/tcp of victim/np, which answers at this address", n/250, n%250)
		}},
		{"the node's IPv6 address", func(n int) string {
			return fmt.Sprintf("external IP fd00::%c is an address of this node, so IPVS must not make it local", 'a'+n%6)
		}},
		{"pools and a backoff", func(n int) string {
			return fmt.Sprintf("nf_tables refused add element ip verdict pools { %x:%x : 20:2 }: file exists; nobody serves the port, "+
				"and it is tried again every %s", n, n+10, time.Duration(n+1)*time.Minute)
		}},
		{"how many endpoints are not checked", func(n int) string { return fmt.Sprintf("%d endpoints are not checked", n+1) }},
	} {
		client := fake.NewClientset()
		problem := func(n int) state.Problem {
			return state.Problem{Kind: "Service", Object: badService, Field: "spec.externalIPs", Reason: tt.reason(n)}
		}
		more := func(n int) state.Problem {
			return state.Problem{Kind: "Service", Object: badService, Field: "(others)", Reason: fmt.Sprintf("and %d more problems", n), More: n}
		}
		for n := range 50 {
			raiseFrom(t, client, fmt.Sprint("node-", n), problem(n), problem(n+1), more(n+1))
			raiseFrom(t, client, fmt.Sprint("node-", n), problem(n+7))
		}
		if list := raised(t, client); len(list) != 1 || !strings.Contains(list[0].Note, tt.reason(0)) {
			t.Errorf("%s: %d Events, want one with the text of the first node", tt.what, len(list))
		}
		taken := state.Problem{Kind: "Service", Object: badService, Field: "spec.externalIPs", Reason: "frontend 192.0.2.1:80/tcp is taken by shop/a"}
		raiseFrom(t, client, "node-7", problem(7), taken)
		if list := raised(t, client); len(list) != 2 {
			t.Errorf("%s: %d Events after a new kind of problem, want 2", tt.what, len(list))
		}
	}
}

// TestNoRequestForABackoff: the node that has raised the Event asks for none when only the pause is longer.
func TestNoRequestForABackoff(t *testing.T) {
	e := New(fake.NewClientset(), "n", state.NewStore(), slog.New(slog.DiscardHandler))
	for wait := time.Minute; wait < time.Hour; wait *= 2 {
		p := state.Problem{Field: "spec.ports", Reason: fmt.Sprintf("refused; it is tried again every %s", wait)}
		e.Problems([]state.ObjectProblems{{Object: state.Object{Kind: "Service", Name: badService}, Problems: []state.Problem{p}}})
	}
	if e.queue.notes.Len() != 1 {
		t.Errorf("%d Events, want 1", e.queue.notes.Len())
	}
}

// TestEventsOnlyForNewProblems: problems that go, or stay, raise nothing.
func TestEventsOnlyForNewProblems(t *testing.T) {
	e := New(fake.NewClientset(), "n", state.NewStore(), slog.New(slog.DiscardHandler))
	for _, step := range []struct{ problems, queued int }{{3, 1}, {3, 1}, {2, 1}, {3, 2}, {0, 2}, {1, 3}} {
		e.Problems([]state.ObjectProblems{{Object: state.Object{Kind: "Service", Name: badService}, Problems: manyProblems(step.problems)}})
		if e.queue.notes.Len() != step.queued {
			t.Errorf("%d problems: %d Events, want %d", step.problems, e.queue.notes.Len(), step.queued)
		}
	}
	e.Problems([]state.ObjectProblems{{Object: state.Object{Kind: "Node"}, Problems: manyProblems(1)}})
	if e.queue.notes.Len() != 3 {
		t.Error("an Event for a Node")
	}
}

// TestEventsWhileTheServerRefuses: the log has one line for many failures, and one for many Events that were dropped.
func TestEventsWhileTheServerRefuses(t *testing.T) {
	client, log := fake.NewClientset(), &strings.Builder{}
	client.PrependReactor("create", "events", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, fmt.Errorf("injected: the API server is away")
	})
	store := state.NewStore()
	store.SetService(&state.Service{Name: badService}, nil)
	e := New(client, "n", store, slog.New(slog.NewTextHandler(log, nil)))
	failing := false
	for range 5 {
		n := Event{Service: badService, Reason: "NotHonored", Text: "bad"}
		failing = e.report(e.raise(t.Context(), n), n, failing)
	}
	if n := strings.Count(log.String(), "cannot raise an Event"); n != 1 {
		t.Errorf("%d lines about failures, want 1", n)
	}
	for range eventQueue + 100 {
		e.Post(Event{Service: badService})
	}
	e.reportDropped()
	e.reportDropped()
	if n := strings.Count(log.String(), "some were dropped"); n != 1 {
		t.Errorf("%d lines about dropped Events, want 1", n)
	}
}

// hanging never answers the first request.
type hanging struct{ requests int }

func (h *hanging) RoundTrip(r *http.Request) (*http.Response, error) {
	if h.requests++; h.requests == 1 {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	body := io.NopCloser(strings.NewReader(`{"apiVersion":"events.k8s.io/v1","kind":"Event"}`))
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
}

// TestHangingRequest: a request without an answer ends, and the next Event is raised.
func TestHangingRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hanging{}
		client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api.invalid", Transport: h})
		if err != nil {
			t.Fatal(err)
		}
		e := New(client, "n", state.NewStore(), slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		postMany(e, "shop", 2)
		<-time.After(cluster.AnswerPatience + time.Second)
		synctest.Wait()
		if h.requests != 2 {
			t.Errorf("%d requests, want 2", h.requests)
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// postMany posts an Event for each of many Services of a namespace.
func postMany(e *Recorder, namespace string, n int) {
	for i := range n {
		name := state.Name{Namespace: namespace, Name: fmt.Sprint("svc-", i)}
		e.store.SetService(&state.Service{Name: name}, nil)
		e.Post(Event{Service: name, Reason: "NotHonored", Topic: "bad"})
	}
}

// TestTenantLeavesRoomForEvents: thousands of bad Services of some tenants do not keep another namespace from its Events,
// whether its Services come before or after them. What is dropped is counted.
func TestTenantLeavesRoomForEvents(t *testing.T) {
	client := fake.NewClientset()
	e := New(client, "n", state.NewStore(), slog.New(slog.DiscardHandler))
	dropped := 0
	e.dropped = func() { dropped++ }
	postMany(e, "before", 40)
	postMany(e, "tenant-1", 5000)
	postMany(e, "tenant-2", 5000)
	postMany(e, "after", 40)
	if dropped != 10080-eventQueue {
		t.Errorf("%d of 10080 Events count as dropped; %d have room", dropped, eventQueue)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	for end := time.Now().Add(3 * time.Minute); len(client.Actions()) < eventQueue && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for i, action := range client.Actions() {
		if count[action.GetNamespace()]++; i == 3 && len(count) != 4 {
			t.Errorf("the first four Events are of %v, want one of each namespace", count)
		}
	}
	if want := map[string]int{"before": 40, "after": 40, "tenant-1": 88, "tenant-2": 88}; !maps.Equal(count, want) {
		t.Errorf("Events by namespace: %v, want %v", count, want)
	}
}

// TestEventNamesTheProcess: what another process does to the tables is an Event on the Node, once an hour for each process.
func TestEventNamesTheProcess(t *testing.T) {
	client := fake.NewClientset()
	e := New(client, "node-1", state.NewStore(), slog.New(slog.DiscardHandler))
	began := time.Now()
	for _, x := range []struct {
		process string
		after   time.Duration
	}{{"nft", 0}, {"nft", time.Minute}, {"firewalld", 2 * time.Minute}, {"nft", time.Hour}, {"", time.Hour}} {
		i := kernel.Interference{Process: x.process, PID: 7, Structure: true}
		e.Interfered(&report.Repair{Interference: i}, "repaired", began.Add(x.after))
	}
	for range 2 {
		e.Interfered(&report.Repair{Servers: true}, "reported", began)
	}
	raiseAll(t, e)
	var notes []string
	for _, event := range raised(t, client) {
		notes = append(notes, event.Note)
		if event.Regarding.Kind != "Node" || event.Regarding.Name != "node-1" || event.Namespace != "default" || event.Type != "Warning" {
			t.Errorf("an Event of type %s about %+v in %s", event.Type, event.Regarding, event.Namespace)
		}
	}
	slices.Sort(notes)
	changed := " changed the tables of Verdict: chains, rules or sets; the change was repaired"
	want := []string{
		"a process that the kernel does not name changed the tables of Verdict: chains, rules or sets; the change was repaired",
		"a process that the kernel does not name changed virtual servers of Verdict; the change was reported",
		"process firewalld (pid 7)" + changed,
		"process nft (pid 7)" + changed, "process nft (pid 7)" + changed,
	}
	if !slices.Equal(notes, want) {
		t.Errorf("notes %q, want %q", notes, want)
	}
}
