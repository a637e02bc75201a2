package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/verdict-proxy/verdict/e2e/sourcetest"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// apiServer implements a part of the API over real HTTP, so that tests can inject faults. It answers in JSON, which
// clients must accept from servers that cannot encode a kind as protobuf.
type apiServer struct {
	t         *testing.T
	addr      string
	noStreams bool // reject streamed lists, as servers before 1.32 do

	mu       sync.Mutex
	server   *http.Server
	objects  map[string][]any // by resource
	requests []url.Values     // with "resource" and "accept" added
}

// ownLoopback is where the servers of these tests listen. Other tests use 127.0.0.1, so none of them takes the port of a
// server that is away.
const ownLoopback = "127.0.77.1:0"

func startAPIServer(t *testing.T, objects map[string][]any) *apiServer {
	t.Helper()
	return startAPIServerAt(t, ownLoopback, objects)
}

func startAPIServerAt(t *testing.T, addr string, objects map[string][]any) *apiServer {
	t.Helper()
	s := &apiServer{t: t, addr: addr, objects: objects}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *apiServer) start() {
	s.t.Helper()
	var listener net.Listener
	sourcetest.Eventually(s.t, "the address is free again", func() bool {
		l, err := net.Listen("tcp", s.addr)
		listener = l
		return err == nil
	})
	s.addr = listener.Addr().String()
	s.server = &http.Server{Handler: s}
	go func(server *http.Server) {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			s.t.Errorf("serve: %v", err)
		}
	}(s.server)
}

// stop closes all connections and the listener.
func (s *apiServer) stop() {
	if err := s.server.Close(); err != nil {
		s.t.Errorf("close: %v", err)
	}
}

// asked returns the requests for one resource.
func (s *apiServer) asked(resource string) []url.Values {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []url.Values
	for _, r := range s.requests {
		if r.Get("resource") == resource {
			found = append(found, r)
		}
	}
	return found
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	resource, query := path.Base(r.URL.Path), r.URL.Query()
	query.Set("resource", resource)
	query.Set("accept", r.Header.Get("Accept"))
	s.mu.Lock()
	s.requests = append(s.requests, query)
	objects := s.objects[resource]
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	streamed := query.Get("sendInitialEvents") == "true"
	switch {
	case streamed && s.noStreams:
		w.WriteHeader(http.StatusUnprocessableEntity)
		s.write(w, metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
			Status:   "Failure", Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity,
		})
	case query.Get("watch") == "true":
		if streamed {
			s.streamList(w, resource, objects)
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	default:
		list := map[string]any{"metadata": map[string]any{"resourceVersion": "7"}, "items": objects}
		withKind(list, resource, "List")
		s.write(w, list)
	}
}

// streamList also sends a bookmark after the list: client-go takes a watch without an event for a failure if it ends soon.
func (s *apiServer) streamList(w http.ResponseWriter, resource string, objects []any) {
	for _, o := range objects {
		s.write(w, map[string]any{"type": "ADDED", "object": asMap(s.t, o, resource)})
	}
	for _, annotations := range []map[string]any{{metav1.InitialEventsAnnotationKey: "true"}, nil} {
		mark := map[string]any{"metadata": map[string]any{"resourceVersion": "7", "annotations": annotations}}
		withKind(mark, resource, "")
		s.write(w, map[string]any{"type": "BOOKMARK", "object": mark})
	}
}

func asMap(t *testing.T, o any, resource string) map[string]any {
	data, err := json.Marshal(o)
	if err != nil {
		t.Errorf("encode: %v", err)
	}
	m := map[string]any{}
	if err := json.Unmarshal(data, &m); err != nil {
		t.Errorf("decode: %v", err)
	}
	withKind(m, resource, "")
	return m
}

func withKind(m map[string]any, resource, suffix string) {
	kind := map[string][2]string{
		"services":       {"v1", "Service"},
		"endpointslices": {"discovery.k8s.io/v1", "EndpointSlice"},
		"nodes":          {"v1", "Node"},
		"servicecidrs":   {"networking.k8s.io/v1", "ServiceCIDR"},
	}[resource]
	m["apiVersion"], m["kind"] = kind[0], kind[1]+suffix
}

func (s *apiServer) write(w http.ResponseWriter, v any) {
	err := json.NewEncoder(w).Encode(v)
	if _, gone := errors.AsType[*net.OpError](err); err != nil && !gone {
		s.t.Errorf("answer: %v", err)
	}
}

// runAgainst runs a source with a real client against the server.
func runAgainst(t *testing.T, s *apiServer) (*Source, *state.Store, *sourcetest.Journal) {
	t.Helper()
	client, err := NewClient(Config{Master: "http://" + s.addr, QPS: 1000, Burst: 1000, UserAgent: "verdict-test"})
	if err != nil {
		t.Fatal(err)
	}
	log, lines := sourcetest.NewLog(t)
	store := state.NewStore()
	k := New(Options{Client: client, NodeName: "n1", Store: store, Log: log})
	k.plausible.wait = 0 // the server of the test has no Service of its own
	k.confirm = time.Second
	sourcetest.Run(t, k.Run)
	return k, store, lines
}

func clusterObjects() map[string][]any {
	return map[string][]any{
		"services": {sourcetest.Service()}, "endpointslices": {sourcetest.Slice()}, "nodes": {ownNode()},
		"servicecidrs": {sourcetest.Ranges("kubernetes", "10.96.0.0/12")},
	}
}

// TestStreamedLists: the source asks for streamed lists (WatchList), prefers protobuf and sends its selectors.
func TestStreamedLists(t *testing.T) {
	s := startAPIServer(t, clusterObjects())
	k, store, lines := runAgainst(t, s)
	sourcetest.Eventually(t, "synced", func() bool { return sourcetest.Synced(k) })
	if env := store.Environment(); !sourcetest.HasService(store, "shop", "web", 1) || env.Node == nil || len(env.ServiceCIDRs) != 1 {
		t.Errorf("an object is missing; environment %+v", env)
	}
	for resource, selector := range map[string]string{
		"services":       "!service.kubernetes.io/service-proxy-name",
		"endpointslices": "!service.kubernetes.io/headless",
	} {
		got := s.asked(resource)[0]
		if got.Get("sendInitialEvents") != "true" || got.Get("labelSelector") != selector {
			t.Errorf("%s: the request was %v", resource, got)
		}
		if !strings.HasPrefix(got.Get("accept"), "application/vnd.kubernetes.protobuf") {
			t.Errorf("%s: accepts %q, want protobuf first", resource, got.Get("accept"))
		}
	}
	if got := lines.Lines("level="); len(got) > 0 {
		t.Errorf("logged: %q", got)
	}
}

// TestServerWithoutStreams: an older server rejects streamed lists. That is no outage.
func TestServerWithoutStreams(t *testing.T) {
	s := &apiServer{t: t, addr: ownLoopback, objects: clusterObjects(), noStreams: true}
	s.start()
	t.Cleanup(s.stop)
	k, store, lines := runAgainst(t, s)
	sourcetest.Eventually(t, "synced", func() bool { return sourcetest.Synced(k) })
	if env := store.Environment(); !sourcetest.HasService(store, "shop", "web", 1) || env.Node == nil || len(env.ServiceCIDRs) != 1 {
		t.Errorf("an object is missing; environment %+v", env)
	}
	if got := lines.Lines("level="); len(got) > 0 {
		t.Errorf("logged: %q", got)
	}
}

// TestServerLost: the server breaks all connections and refuses new ones for a while. Known objects stay, and the
// outage is logged once.
func TestServerLost(t *testing.T) {
	t.Parallel() // it waits for client-go to try again
	s := startAPIServer(t, clusterObjects())
	k, store, lines := runAgainst(t, s)
	sourcetest.Eventually(t, "synced", func() bool { return sourcetest.Synced(k) })
	store.MarkSynced()
	sourcetest.Applied(t, store)

	s.stop()
	sourcetest.Eventually(t, "the outage is logged", func() bool { return len(lines.Lines("cannot read", "stay in force")) > 0 })
	if c, _ := store.Pending(); len(c.Services) > 0 || c.Environment {
		t.Errorf("the loss of the server caused changes: %+v", c)
	}
	s.start()
	sourcetest.Eventually(t, "the end of the outage is logged", func() bool { return len(lines.Lines("can be read again")) > 0 })
	if got := lines.Lines("level=WARN"); len(got) != 1 {
		t.Errorf("%d lines about one outage: %q", len(got), got)
	}
	if !sourcetest.HasService(store, "shop", "web", 1) {
		t.Error("the Service is gone")
	}
}

// TestFollowsAfterOutage: after an outage, everything is read once more, and what has changed meanwhile arrives.
func TestFollowsAfterOutage(t *testing.T) {
	t.Parallel() // it waits for client-go to try again
	s := startAPIServer(t, clusterObjects())
	k, store, _ := runAgainst(t, s)
	sourcetest.Eventually(t, "synced", func() bool { return sourcetest.Synced(k) })
	s.stop()
	sourcetest.Eventually(t, "the outage is noticed", func() bool {
		k.outages.mu.Lock()
		defer k.outages.mu.Unlock()
		return k.outages.failing["services"] != nil
	})
	changed := []any{sourcetest.Service()}
	for i := range 40 {
		changed = append(changed, sourcetest.Service(func(o *corev1.Service) { o.Name = fmt.Sprintf("late-%d", i) }))
	}
	s.mu.Lock()
	s.objects["services"] = changed
	s.mu.Unlock()
	s.start()
	sourcetest.Eventually(t, "the node follows the cluster again", func() bool { return len(store.ServiceNames()) == len(changed) })
}

// TestServerAbsentAtStart: a node boots before its API server. The source is not synced, and it ends with its context,
// even in the middle of a pause.
func TestServerAbsentAtStart(t *testing.T) {
	t.Parallel() // it waits for client-go to try again
	s := startAPIServer(t, clusterObjects())
	s.stop()
	k, store, lines := runAgainst(t, s)
	sourcetest.Eventually(t, "the outage is logged", func() bool { return len(lines.Lines("cannot read", "trying again")) > 0 })
	if sourcetest.Synced(k) {
		t.Error("synced without a server")
	}
	s.start()
	sourcetest.Eventually(t, "synced", func() bool { return sourcetest.Synced(k) })
	if !sourcetest.HasService(store, "shop", "web", 1) {
		t.Error("the Service is missing")
	}
}

func TestRunEndsInAPause(t *testing.T) {
	s := startAPIServer(t, clusterObjects())
	s.stop()
	defer s.start()
	client, err := NewClient(Config{Master: "http://" + s.addr})
	if err != nil {
		t.Fatal(err)
	}
	log, lines := sourcetest.NewLog(t)
	k := New(Options{Client: client, NodeName: "n1", Store: state.NewStore(), Log: log})
	stop := sourcetest.Run(t, k.Run)
	sourcetest.Eventually(t, "the outage is logged", func() bool { return len(lines.Lines("cannot read")) > 0 })
	stop()
}

// TestClock: a pause ends when the context ends, and otherwise not before its time.
func TestClock(t *testing.T) {
	done := make(chan struct{})
	c := interruptibleClock{done: done}
	<-c.After(time.Millisecond)
	long := c.After(24 * time.Hour)
	select {
	case <-long:
		t.Error("a long pause ended at once")
	default:
	}
	close(done)
	<-long
}

func TestNewClient(t *testing.T) {
	dir := t.TempDir()
	good := filepath.Join(dir, "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: k, cluster: {server: "https://192.0.2.1:6443"}}],
contexts: [{name: c, context: {cluster: k, user: u}}], users: [{name: u, user: {token: t}}]}`
	if err := os.WriteFile(good, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, tt := range []struct {
		name   string
		config Config
		want   string // part of the error; "" for none
	}{
		{"kubeconfig", Config{Kubeconfig: good}, ""},
		{"master", Config{Master: "https://192.0.2.1:6443"}, ""},
		{"no file", Config{Kubeconfig: filepath.Join(dir, "absent")}, "absent"},
		{"outside of a cluster", Config{}, "unable to load in-cluster configuration"},
		{"no URL", Config{Master: "://"}, "://"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			client, err := NewClient(tt.config)
			if tt.want == "" && (err != nil || client == nil) {
				t.Errorf("got %v", err)
			}
			if tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}
