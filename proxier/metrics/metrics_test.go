package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func newTestMetrics(t *testing.T) *Metrics {
	t.Helper()
	m, err := New(Options{
		Registry: prometheus.NewRegistry(), Families: []state.Family{state.IPv4, state.IPv6}, Version: "v1", Revision: "abc",
		Changes: func() state.ChangeCounts {
			return state.ChangeCounts{Services: 10, Endpoints: 20, PendingServices: 1, PendingEndpoints: 2}
		},
		Seconds: func() map[string]float64 { return map[string]float64{"shop": 1.5, "tenant": 40} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// scrape returns the lines of a scrape.
func scrape(t *testing.T, m *Metrics) []string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("scrape: %d %s", w.Code, w.Body)
	}
	return strings.Split(w.Body.String(), "\n")
}

// has checks that each of the given lines is in a scrape.
func has(t *testing.T, m *Metrics, want string) {
	t.Helper()
	lines := scrape(t, m)
	for _, line := range strings.Split(strings.TrimSpace(want), "\n") {
		if line = strings.TrimSpace(line); !slices.Contains(lines, line) {
			name, _, _ := strings.Cut(line, "{")
			t.Errorf("missing: %s\nfound:\n%s", line, strings.Join(slices.DeleteFunc(slices.Clone(lines), func(l string) bool {
				return !strings.HasPrefix(l, name)
			}), "\n"))
		}
	}
}

func TestBeforeAnythingHappened(t *testing.T) {
	m := newTestMetrics(t)
	has(t, m, `
		verdict_passes_total{outcome="applied"} 0
		verdict_passes_total{outcome="rejected"} 0
		verdict_passes_total{outcome="unknown"} 0
		verdict_element_operations_total{op="add"} 0
		verdict_element_operations_total{op="delete"} 0
		verdict_rejected_objects{kind="EndpointSlice"} 0
		verdict_rejected_objects{kind="Service"} 0
		verdict_last_applied_timestamp_seconds 0
		kubeproxy_proxy_healthz_total{code="200"} 0
		kubeproxy_proxy_livez_total{code="503"} 0
		kubeproxy_network_programming_duration_seconds_count{ip_family="IPv6"} 0
		kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv4"} 0
	`)
	for _, prefix := range []string{"go_goroutines ", "process_resident_memory_bytes ", `verdict_build_info{goversion="go`} {
		if !slices.ContainsFunc(scrape(t, m), func(l string) bool { return strings.HasPrefix(l, prefix) }) {
			t.Errorf("no line starts with %q", prefix)
		}
	}
}

func TestPasses(t *testing.T) {
	m := newTestMetrics(t)
	at := time.Unix(1000, 0)
	m.Pending(at.Add(-time.Second))
	m.PassDone(&report.Pass{Started: at, Duration: 500 * time.Millisecond, Planning: time.Millisecond, Result: dataplane.Result{
		Full: true, Added: 7, Deleted: 2, Encode: 2 * time.Millisecond, Kernel: 3 * time.Millisecond, Transactions: [3]int{2, 1, 0}}})
	for _, outcome := range []kernel.Outcome{kernel.Rejected, kernel.Unknown} {
		m.PassDone(&report.Pass{Started: at.Add(time.Hour), Duration: time.Microsecond, Result: dataplane.Result{
			Outcome: outcome, Err: errors.New("not in the kernel"), Added: 100, Deleted: 100}})
	}
	has(t, m, `
		verdict_passes_total{outcome="applied"} 1
		verdict_passes_total{outcome="rejected"} 1
		verdict_passes_total{outcome="unknown"} 1
		verdict_pass_duration_seconds_bucket{le="5e-05"} 2
		verdict_transactions_total{outcome="applied"} 2
		verdict_transactions_total{outcome="rejected"} 1
		verdict_transaction_duration_seconds_sum{stage="plan"} 0.001
		verdict_transaction_duration_seconds_sum{stage="encode"} 0.002
		verdict_transaction_duration_seconds_sum{stage="kernel"} 0.003
		verdict_transaction_duration_seconds_count{stage="kernel"} 1
		kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"} 1
		kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family="IPv6"} 2
		kubeproxy_sync_proxy_rules_nftables_sync_failures_total{ip_family="IPv4"} 2
		kubeproxy_sync_proxy_rules_service_changes_total 10
		kubeproxy_sync_proxy_rules_endpoint_changes_total 20
		kubeproxy_sync_proxy_rules_service_changes_pending 1
		kubeproxy_sync_proxy_rules_endpoint_changes_pending 2
		verdict_pass_duration_seconds_bucket{le="+Inf"} 3
		kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family="IPv4",le="0.001"} 2
		kubeproxy_sync_proxy_rules_duration_seconds_bucket{ip_family="IPv6",le="16.384"} 3
		verdict_element_operations_total{op="add"} 7
		verdict_element_operations_total{op="delete"} 2
		verdict_last_applied_timestamp_seconds 1000.5
		kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 1000.5
		kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"} 1000.5
		kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds{ip_family="IPv6"} 999
	`)
	m.AsWanted(at.Add(time.Minute))
	has(t, m, `
		verdict_last_applied_timestamp_seconds 1000.5
		kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv4"} 1060
		kubeproxy_sync_proxy_rules_last_timestamp_seconds{ip_family="IPv6"} 1060
	`)
}

func TestReadable(t *testing.T) {
	m := newTestMetrics(t)
	m.Readable("services", false)
	m.Readable("services", true)
	m.Readable("nodes", false)
	has(t, m, `
		verdict_api_resource_readable{resource="services"} 1
		verdict_api_resource_readable{resource="nodes"} 0
		verdict_api_resource_failures_total{resource="services"} 1
		verdict_api_resource_failures_total{resource="nodes"} 1
	`)
}

func TestServed(t *testing.T) {
	m := newTestMetrics(t)
	serve := func(nft, ipvs dataplane.Totals) {
		m.PassDone(&report.Pass{Totals: dataplane.AllTotals{
			Engines: [...]dataplane.Totals{dataplane.NFT: nft, dataplane.IPVS: ipvs},
			NoLocal: [...]dataplane.NoLocal{state.IPv6: {Internal: 2, External: 1}},
		}})
	}
	ipvs := dataplane.Totals{Frontends: [...]int{plan.ClusterIP: 1, plan.NodePort: 0}, Endpoints: 5}
	ipvs.Pools[1] = 1
	nft := dataplane.Totals{Frontends: [...]int{plan.ClusterIP: 4, plan.ExternalIP: 3, plan.LoadBalancer: 2, plan.NodePort: 1}, Endpoints: 40}
	nft.Pools[0], nft.Pools[1] = 7, 3
	serve(nft, ipvs)
	nft = dataplane.Totals{Frontends: [...]int{plan.ClusterIP: 2, plan.NodePort: 1}, Endpoints: 39}
	nft.Pools[0] = 8
	serve(nft, ipvs)
	has(t, m, `
		verdict_frontends{engine="nft",kind="cluster_ip"} 2
		verdict_frontends{engine="nft",kind="external_ip"} 0
		verdict_frontends{engine="nft",kind="load_balancer"} 0
		verdict_frontends{engine="nft",kind="node_port"} 1
		verdict_frontends{engine="ipvs",kind="cluster_ip"} 1
		verdict_endpoints{engine="nft"} 39
		verdict_endpoints{engine="ipvs"} 5
		verdict_pools{engine="nft",scheduler="random"} 8
		verdict_pools{engine="nft",scheduler="rr"} 0
		verdict_pools{engine="ipvs",scheduler="rr"} 1
		kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv6",traffic_policy="internal"} 2
		kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv6",traffic_policy="external"} 1
		kubeproxy_sync_proxy_rules_no_local_endpoints_total{ip_family="IPv4",traffic_policy="external"} 0
	`)
}

func TestProblems(t *testing.T) {
	m := newTestMetrics(t)
	m.Problems(report.Problems{
		Faulty: map[string]int{"Service": 2, "File": 1, "Gateway": 1},
		Fields: map[[2]string]int{{"Service", "spec.ports"}: 3, {"File", "line"}: 1},
	})
	has(t, m, `
		verdict_rejected_objects{kind="Service"} 2
		verdict_rejected_objects{kind="File"} 1
		verdict_rejected_objects{kind="Gateway"} 1
		verdict_problems{field="spec.ports",kind="Service"} 3
	`)
	m.Problems(report.Problems{
		Faulty: map[string]int{"Service": 1, "Gateway": 0}, Fields: map[[2]string]int{{"Service", "spec.externalIPs"}: 1},
	})
	has(t, m, `
		verdict_rejected_objects{kind="Service"} 1
		verdict_rejected_objects{kind="File"} 0
		verdict_problems{field="spec.externalIPs",kind="Service"} 1
	`)
	for _, line := range scrape(t, m) {
		if strings.Contains(line, "spec.ports") {
			t.Errorf("a problem that is solved: %s", line)
		}
	}
}

func TestAnswered(t *testing.T) {
	m := newTestMetrics(t)
	m.Answered("/healthz", 200)
	m.Answered("/healthz", 503)
	m.Answered("/healthz", 503)
	m.Answered("/livez", 200)
	has(t, m, `
		kubeproxy_proxy_healthz_total{code="200"} 1
		kubeproxy_proxy_healthz_total{code="503"} 2
		kubeproxy_proxy_livez_total{code="200"} 1
		kubeproxy_proxy_livez_total{code="503"} 0
	`)
}

func TestProgrammedAndFlows(t *testing.T) {
	m := newTestMetrics(t)
	at := time.Unix(1000, 0)
	m.PassDone(&report.Pass{Started: at, Triggers: []report.Trigger{
		{Family: state.IPv4, At: at.Add(-300 * time.Millisecond)}, {Family: state.IPv4, At: at.Add(-90 * time.Second)},
	}})
	m.PassDone(&report.Pass{Latencies: []state.Latency{{Change: "endpoint_added", Took: 600 * time.Microsecond}, {Change: "service", Took: time.Second}}})
	has(t, m, `
		verdict_change_duration_seconds_bucket{change="endpoint_added",le="0.0005"} 0
		verdict_change_duration_seconds_bucket{change="endpoint_added",le="0.001"} 1
		verdict_change_duration_seconds_sum{change="service"} 1
		verdict_change_duration_seconds_count{change="endpoint_removed"} 0
	`)
	m.FlowsCleaned([]conntrack.Result{{Family: state.IPv6, Took: 3 * time.Millisecond, Deleted: 12}})
	has(t, m, `
		kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="0.25"} 0
		kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="0.5"} 1
		kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="59"} 1
		kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="90"} 2
		kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="300"} 2
		kubeproxy_network_programming_duration_seconds_count{ip_family="IPv6"} 0
		kubeproxy_conntrack_reconciler_sync_duration_seconds_bucket{ip_family="IPv6",le="0.004"} 1
		kubeproxy_conntrack_reconciler_deleted_entries_total{ip_family="IPv6"} 12
	`)
	if n := len(programmingBuckets()); n != 2+59+12+7 {
		t.Errorf("%d programming buckets", n)
	}
}

// TestTriggerInTheFuture: whoever writes a slice cannot lower the sum of what others took.
func TestTriggerInTheFuture(t *testing.T) {
	m := newTestMetrics(t)
	at := time.Unix(1000, 0)
	m.PassDone(&report.Pass{Started: at, Triggers: []report.Trigger{
		{Family: state.IPv4, At: at.Add(-time.Second)}, {Family: state.IPv4, At: at.Add(365 * 24 * time.Hour)},
	}})
	has(t, m, `
		kubeproxy_network_programming_duration_seconds_bucket{ip_family="IPv4",le="0.25"} 1
		kubeproxy_network_programming_duration_seconds_sum{ip_family="IPv4"} 1
		kubeproxy_network_programming_duration_seconds_count{ip_family="IPv4"} 2
	`)
}

func TestNamesTaken(t *testing.T) {
	m := newTestMetrics(t)
	if _, err := New(Options{Registry: m.registry}); err == nil || !strings.Contains(err.Error(), "register metrics") {
		t.Errorf("registering twice: %v", err)
	}
}

// counted is a collector that counts how often it was asked, and how many asked at the same time.
type counted struct{ asked, present, most atomic.Int64 }

func (c *counted) Describe(ch chan<- *prometheus.Desc) {
	ch <- prometheus.NewDesc("asked", "", nil, nil)
}

func (c *counted) Collect(ch chan<- prometheus.Metric) {
	c.most.Store(max(c.most.Load(), c.present.Add(1)))
	for range 100 {
		runtime.Gosched()
	}
	c.present.Add(-1)
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("asked", "", nil, nil), prometheus.CounterValue, float64(c.asked.Add(1)))
}

// TestSharedAnswers: whoever asks within a second gets the same answer, whatever the request says. One is encoded at a time.
func TestSharedAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, c := newTestMetrics(t), &counted{}
		m.registry.MustRegister(c)
		handler, encodings := m.Handler(), []string{"", "gzip", "gzip, deflate", "zstd", "br;q=0.5"}
		formats := []string{"", "text/plain", "application/openmetrics-text;version=1.0.0", "*/*;q=0.1",
			"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "text/plain;escaping=allow-utf-8", "text/plain;escaping=dots"}
		ask := func(n int) *httptest.ResponseRecorder {
			r := httptest.NewRequest(http.MethodGet, fmt.Sprintf("/metrics?name[]=n%d", n), nil)
			r.Header.Set("Accept", formats[n%len(formats)])
			r.Header.Set("Accept-Encoding", encodings[n/len(formats)%len(encodings)])
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			return w
		}
		for second := int64(1); second <= 2; second++ {
			var all sync.WaitGroup
			for n := range 10 * len(formats) * len(encodings) {
				all.Go(func() {
					if w := ask(n); w.Code != http.StatusOK || w.Body.Len() == 0 {
						t.Errorf("request %d: %d", n, w.Code)
					}
				})
			}
			all.Wait()
			if got := c.asked.Load(); got != 4*second {
				t.Errorf("in second %d, %d answers were encoded, want %d: with and without protocol buffers and gzip", second, got, 4*second)
			}
			time.Sleep(keepFor)
			synctest.Wait() // until the answers are forgotten: their timers fire at the same instant
		}
		if c.most.Load() != 1 {
			t.Errorf("%d answers were encoded at the same time", c.most.Load())
		}
		for n, want := range map[int][2]string{
			0: {"text/plain", ""}, 4: {"application/vnd.google.protobuf", ""}, 7: {"text/plain", "gzip"}, 11: {"application/vnd.google.protobuf", "gzip"},
		} {
			h := ask(n).Header()
			if !strings.HasPrefix(h.Get("Content-Type"), want[0]) || h.Get("Content-Encoding") != want[1] {
				t.Errorf("request %d gets %v, want %v", n, h, want)
			}
		}
	})
}

// TestNamespaces: the namespaces that used most processor time have series, and those that others have overtaken have none.
func TestNamespaces(t *testing.T) {
	m := newTestMetrics(t)
	const want = `# HELP verdict_namespace_seconds_total Processor time that the changes of a namespace took: planning, in the kernel and beside. Only the ten namespaces with most have a series.
# TYPE verdict_namespace_seconds_total counter
verdict_namespace_seconds_total{namespace="shop"} 1.5
verdict_namespace_seconds_total{namespace="tenant"} 40
`
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), "verdict_namespace_seconds_total"); err != nil {
		t.Error(err)
	}
}
