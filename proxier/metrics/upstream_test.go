package metrics

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/verdict-proxy/verdict/e2e/exposition"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// withoutMeaning says why Verdict does not have a metric of kube-proxy.
func withoutMeaning() map[string]string {
	const (
		noIPTables = "Verdict does not use iptables"
		noListener = "Verdict translates node ports on localhost in the kernel, without a listener"
	)
	return map[string]string{
		"kubeproxy_iptables_ct_state_invalid_dropped_packets_total":              noIPTables,
		"kubeproxy_iptables_localhost_nodeports_accepted_packets_total":          noIPTables,
		"kubeproxy_sync_proxy_rules_iptables_last":                               noIPTables,
		"kubeproxy_sync_proxy_rules_iptables_total":                              noIPTables,
		"kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total":     noIPTables,
		"kubeproxy_sync_proxy_rules_iptables_restore_failures_total":             noIPTables,
		"kubeproxy_nftables_localhost_nodeport_listener_creation_failures_total": noListener,
		"kubeproxy_nftables_localhost_nodeport_listeners":                        noListener,
		"kubeproxy_nftables_localhost_nodeport_rejected_packets_total":           noListener,
		"kubeproxy_sync_proxy_rules_nftables_cleanup_failures_total":             "the transaction that changes rules removes old ones as well",
	}
}

// TestMetricsOfUpstream compares name, type, labels and buckets with those that kube-proxy shows.
func TestMetricsOfUpstream(t *testing.T) {
	want, err := exposition.Recorded("kubeproxy_", "testdata/kube-proxy.txt", "testdata/kube-proxy-unseen.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(want) < 25 {
		t.Fatalf("only %d metrics are recorded", len(want))
	}
	for _, difference := range exposition.Compare(shown(t), want, withoutMeaning()) {
		t.Error(difference)
	}
}

// shown are the metrics after each has something to show.
func shown(t *testing.T) []exposition.Metric {
	t.Helper()
	w := httptest.NewRecorder()
	full(t).Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	list, err := exposition.Read(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// full are metrics that have a series each.
func full(t *testing.T) *Metrics {
	t.Helper()
	m := newTestMetrics(t)
	pass := report.Pass{Result: dataplane.Result{Transactions: [3]int{1, 1, 1}}, Triggers: []report.Trigger{{Family: state.IPv4}}}
	pass.Totals.Engines[dataplane.NFT].Pools[0] = 1
	m.PassDone(&pass)
	m.Pending(time.Unix(1000, 0))
	m.Problems(report.Problems{Faulty: map[string]int{"Service": 1}, Fields: map[[2]string]int{{"Service", "spec.ports"}: 1}})
	return m
}

// TestLint: names and help texts are as Prometheus wants them. Those of upstream keep their names.
func TestLint(t *testing.T) {
	allowed := map[string]bool{"kubeproxy_sync_proxy_rules_no_local_endpoints_total": true} // a gauge
	problems, err := testutil.GatherAndLint(full(t).registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if !allowed[p.Metric] {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
	if len(problems) == 0 {
		t.Error("the linter does not even complain about upstream's gauge")
	}
}
