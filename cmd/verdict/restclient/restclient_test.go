package restclient

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/metrics"

	"github.com/verdict-proxy/verdict/e2e/exposition"
)

// TestMetricsOfUpstream makes requests and reports all that a request does not, and compares names, types, labels and
// buckets with those of kube-proxy.
func TestMetricsOfUpstream(t *testing.T) {
	registry := prometheus.NewRegistry()
	if err := Register(registry); err != nil {
		t.Fatal(err)
	}
	request(t)
	scraped := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(scraped, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text := scraped.Body.String()
	for _, line := range []string{`code="200"`, `method="GET"`, "rest_client_exec_plugin_ttl_seconds +Inf"} {
		if !strings.Contains(text, line) {
			t.Errorf("not found: %s, in\n%s", line, text)
		}
	}

	at, ctx := time.Now().Add(time.Hour), t.Context()
	metrics.ClientCertExpiry.Set(&at)
	metrics.ClientCertRotationAge.Observe(time.Hour)
	metrics.RequestRetry.IncrementRetry(ctx, "503", "GET", "host")
	metrics.ExecPluginCalls.Increment(0, "no_error")
	metrics.TransportCAReloads.Increment("success", "change")
	metrics.TransportCertRotationGCCalls.Increment()
	metrics.TransportCacheGCCalls.Increment("deleted")
	scraped = httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(scraped, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	have, err := exposition.Read(scraped.Body)
	if err != nil {
		t.Fatal(err)
	}
	const folder = "../../../proxier/metrics/testdata/"
	want, err := exposition.Recorded(prefix, folder+"kube-proxy.txt", folder+"kube-proxy-unseen.txt")
	if err != nil || len(want) < 14 {
		t.Fatalf("%d recorded, error %v", len(want), err)
	}
	for _, difference := range exposition.Compare(have, want, nil) {
		t.Error(difference)
	}
	lint(t, registry)
}

// request sends a request through client-go.
func request(t *testing.T) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) }))
	defer server.Close()
	client, err := rest.UnversionedRESTClientFor(&rest.Config{Host: server.URL, ContentConfig: rest.ContentConfig{
		NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}, QPS: 1000, Burst: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one waits for the rate limiter
		if err := client.Get().AbsPath("/").Do(context.Background()).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// lint checks names and help texts.
func lint(t *testing.T, registry *prometheus.Registry) {
	t.Helper()
	problems, err := testutil.GatherAndLint(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}
