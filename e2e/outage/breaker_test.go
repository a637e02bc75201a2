//go:build e2e

package outage

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// fault answers a request in the place of the API server. It reports whether it did; otherwise, the request goes on.
type fault func(b *breaker, w http.ResponseWriter, r *http.Request) bool

// breaker is a proxy on the node, in front of the API server, that breaks answers.
type breaker struct {
	server   *httputil.ReverseProxy
	upstream http.RoundTripper
	target   *url.URL

	mu       sync.Mutex
	fault    fault
	requests int // since the fault began
	clients  map[net.Conn]bool
}

// breakable puts a breaker in front of the API server, and has the daemon use it.
func (b *bed) breakable(t *testing.T) *breaker {
	t.Helper()
	config := b.plane.Config()
	upstream, err := rest.TransportFor(config)
	lab.Must(t, err)
	target, err := url.Parse(config.Host)
	lab.Must(t, err)
	br := &breaker{upstream: upstream, target: target, clients: map[net.Conn]bool{}}
	br.server = &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Header.Del("Authorization") // the breaker has rights of its own
		},
		Transport: upstream, FlushInterval: -1, // at once
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	var listener net.Listener
	b.Node.MustDo(t, func() (err error) {
		listener, err = net.Listen("tcp", "127.0.0.1:6444")
		return err
	})
	server := &http.Server{Handler: br, ConnState: br.track}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		br.set(nil)
		lab.Must(t, server.Close())
	})
	b.kube = filepath.Join(b.dir, "breaker.kubeconfig")
	lab.Must(t, os.WriteFile(b.kube, []byte(kubeconfig), 0o600))
	return br
}

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:6444"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
current-context: c
`

func (b *breaker) track(c net.Conn, s http.ConnState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s == http.StateClosed || s == http.StateHijacked {
		delete(b.clients, c)
	} else {
		b.clients[c] = true
	}
}

// set puts a fault in force, and cuts all connections.
func (b *breaker) set(f fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fault, b.requests = f, 0
	for c := range b.clients {
		_ = c.Close() // the client sees it
	}
}

// count returns how many requests came since the fault began.
func (b *breaker) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// ServeHTTP implements http.Handler.
func (b *breaker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	f := b.fault
	b.requests++
	b.mu.Unlock()
	if f != nil && f(b, w, r) {
		return
	}
	b.server.ServeHTTP(w, r)
}

func isWatch(r *http.Request) bool    { return r.URL.Query().Get("watch") == "true" }
func streams(r *http.Request) bool    { return r.URL.Query().Get("sendInitialEvents") == "true" }
func resource(r *http.Request) string { return filepath.Base(r.URL.Path) }

// status answers with a code.
func status(code int) fault {
	return func(_ *breaker, w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Retry-After", "1")
		http.Error(w, "injected", code)
		return true
	}
}

// garbage answers with a page of some other program.
func garbage(_ *breaker, w http.ResponseWriter, _ *http.Request) bool {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprint(w, "<html>welcome</html>")
	return true
}

// emptyLists answers lists with empty ones, and streams nothing.
func emptyLists(version string) fault {
	kinds := map[string]string{
		"services": "v1 ServiceList", "endpointslices": "discovery.k8s.io/v1 EndpointSliceList", "nodes": "v1 NodeList",
		"servicecidrs": "networking.k8s.io/v1 ServiceCIDRList",
	}
	return func(_ *breaker, w http.ResponseWriter, r *http.Request) bool {
		if streams(r) {
			http.Error(w, "cannot stream", http.StatusBadRequest)
			return true
		}
		var api, kind string
		if _, err := fmt.Sscan(kinds[resource(r)], &api, &kind); err != nil {
			return false // the Service of the API server, for example
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":%q},"items":[]}`, kind, api, version)
		return true
	}
}

// forward sends a request on, and returns the answer.
func (b *breaker) forward(r *http.Request, change func(url.Values)) (*http.Response, error) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.Host, out.RequestURI = b.target.Scheme, b.target.Host, b.target.Host, ""
	out.Header.Del("Authorization")
	q := out.URL.Query()
	change(q)
	out.URL.RawQuery = q.Encode()
	return b.upstream.RoundTrip(out)
}

// truncated sends half of each list.
func truncated(b *breaker, w http.ResponseWriter, r *http.Request) bool {
	if streams(r) {
		http.Error(w, "cannot stream", http.StatusBadRequest)
		return true
	}
	answer, err := b.forward(r, func(url.Values) {})
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body) // what is missing is missing
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(answer.StatusCode)
	_, _ = w.Write(body[:len(body)/2])
	panic(http.ErrAbortHandler)
}

// firstPages sends the first page of each list, and fails at the second one.
func firstPages(b *breaker, w http.ResponseWriter, r *http.Request) bool {
	if streams(r) {
		http.Error(w, "cannot stream", http.StatusBadRequest)
		return true
	}
	if r.URL.Query().Get("continue") != "" || resource(r) == "nodes" {
		http.Error(w, "injected", http.StatusInternalServerError)
		return true
	}
	answer, err := b.forward(r, func(q url.Values) {
		q.Set("limit", "5")
		q.Del("resourceVersion")
		q.Del("resourceVersionMatch")
	})
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
	return true
}

// partOfStream sends the beginning of each stream, and then ends it or hangs.
func partOfStream(hang bool) fault {
	return func(b *breaker, w http.ResponseWriter, r *http.Request) bool {
		if !isWatch(r) {
			http.Error(w, "injected", http.StatusServiceUnavailable)
			return true
		}
		answer, err := b.forward(r, func(url.Values) {})
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
		w.WriteHeader(answer.StatusCode)
		_, _ = io.CopyN(w, answer.Body, 900)
		w.(http.Flusher).Flush()
		if hang {
			<-r.Context().Done()
		}
		return true
	}
}

// shortWatches ends each watch after a second.
func shortWatches(b *breaker, w http.ResponseWriter, r *http.Request) bool {
	if !isWatch(r) {
		return false
	}
	answer, err := b.forward(r, func(url.Values) {})
	if err != nil {
		return false
	}
	end := time.AfterFunc(time.Second, func() { _ = answer.Body.Close() })
	defer end.Stop()
	w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
	w.WriteHeader(answer.StatusCode)
	buffer := make([]byte, 64<<10)
	for {
		n, err := answer.Body.Read(buffer)
		_, _ = w.Write(buffer[:n])
		w.(http.Flusher).Flush()
		if err != nil {
			return true
		}
	}
}

// hang never answers.
func hang(_ *breaker, _ http.ResponseWriter, r *http.Request) bool {
	<-r.Context().Done()
	return true
}
