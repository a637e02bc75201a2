package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verdict-proxy/verdict/proxier/plan"
)

// verdict are the metrics that only this proxy has.
type verdict struct {
	passes       *prometheus.CounterVec
	passDuration prometheus.Histogram
	elements     *prometheus.CounterVec
	frontends    *prometheus.GaugeVec
	endpoints    *prometheus.GaugeVec
	rejected     *prometheus.GaugeVec
	lastApplied  prometheus.Gauge

	interferences  *prometheus.CounterVec
	repairDuration prometheus.Histogram
}

func newVerdict() verdict {
	return verdict{
		passes: counter("verdict_passes_total",
			"Passes over the pending changes, by their outcome in the kernel.", "outcome"),
		passDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "verdict_pass_duration_seconds",
			Help:    "Duration of a pass, from the first plan to the kernel's answer.",
			Buckets: prometheus.ExponentialBuckets(0.00005, 2, 18), // 50 µs to 6.6 s
		}),
		elements: counter("verdict_element_operations_total",
			"Elements of maps and sets that were added to the kernel or deleted from it.", "op"),
		frontends: gauge("verdict_frontends", "Frontends in the kernel.", "kind", "engine"),
		endpoints: gauge("verdict_endpoints",
			"Endpoints in the kernel. An endpoint counts once for every Service port and family that it serves.", "engine"),
		rejected: gauge("verdict_rejected_objects",
			"Objects of which a part cannot be honored. The log and the Events name them.", "kind"),
		lastApplied: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "verdict_last_applied_timestamp_seconds",
			Help: "End of the latest pass that is in the kernel.",
		}),
		interferences: counter("verdict_interferences_total",
			"Commits of other processes that changed the tables, by what became of them: repaired, failed or reported only.", "outcome"),
		repairDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "verdict_repair_duration_seconds",
			Help:    "Duration of a repair, from the event until the kernel has what it should have.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14), // 0.5 ms to 4 s
		}),
	}
}

func (v *verdict) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		v.passes, v.passDuration, v.elements, v.frontends, v.endpoints, v.rejected, v.lastApplied, v.interferences, v.repairDuration,
	}
}

// upstream are the metrics that kube-proxy has as well.
type upstream struct {
	syncDuration, programming *prometheus.HistogramVec
	lastSync, lastQueued      *prometheus.GaugeVec
	healthz, livez            *prometheus.CounterVec
	conntrackDuration         *prometheus.HistogramVec
	conntrackDeleted          *prometheus.CounterVec
}

func newUpstream() upstream {
	const family = "ip_family"
	fromMillisecond := prometheus.ExponentialBuckets(0.001, 2, 15)
	return upstream{
		syncDuration: histogram("kubeproxy_sync_proxy_rules_duration_seconds",
			"Duration of a pass. One pass carries both families, so their series are equal.", fromMillisecond, family),
		programming: histogram("kubeproxy_network_programming_duration_seconds",
			"Time from the change of an endpoint, as its controller recorded it, until the kernel had it.", programmingBuckets(), family),
		lastSync: gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds",
			"End of the latest pass that is in the kernel.", family),
		lastQueued: gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
			"Time since which changes wait or waited for the latest pass.", family),
		healthz: counter("kubeproxy_proxy_healthz_total", "Answers of /healthz by HTTP status.", "code"),
		livez:   counter("kubeproxy_proxy_livez_total", "Answers of /livez by HTTP status.", "code"),
		conntrackDuration: histogram("kubeproxy_conntrack_reconciler_sync_duration_seconds",
			"Duration of a search for stale UDP flows.", fromMillisecond, family),
		conntrackDeleted: counter("kubeproxy_conntrack_reconciler_deleted_entries_total",
			"Stale UDP flows deleted from the connection tracking table.", family),
	}
}

func (u *upstream) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		u.syncDuration, u.programming, u.lastSync, u.lastQueued, u.healthz, u.livez, u.conntrackDuration, u.conntrackDeleted,
	}
}

// programmingBuckets are the buckets of upstream. Its service level objective is stated in whole seconds up to a
// minute.
func programmingBuckets() []float64 {
	return slices.Concat(
		prometheus.LinearBuckets(0.25, 0.25, 2),
		prometheus.LinearBuckets(1, 1, 59),
		prometheus.LinearBuckets(60, 5, 12),
		prometheus.LinearBuckets(120, 30, 7),
	)
}

// problemKinds are the kinds of objects that sources report on.
var problemKinds = [...]string{"Service", "EndpointSlice", "Node", "ServiceCIDR", "File"}

// zero creates the series whose labels are known in advance. Otherwise a series would begin with its first event, and a
// rate over it would miss that event.
func (m *Metrics) zero() {
	for _, outcome := range []string{Applied, Rejected, Unknown} {
		m.passes.WithLabelValues(outcome)
	}
	for _, op := range []string{"add", "delete"} {
		m.elements.WithLabelValues(op)
	}
	for _, code := range []string{"200", "503"} {
		m.healthz.WithLabelValues(code)
		m.livez.WithLabelValues(code)
	}
	for _, f := range m.families {
		m.syncDuration.WithLabelValues(f.String())
		m.programming.WithLabelValues(f.String())
		m.conntrackDuration.WithLabelValues(f.String())
		m.conntrackDeleted.WithLabelValues(f.String())
	}
	m.Problems(nil)
}

func kindLabel(k plan.FrontendKind) string {
	switch k {
	case plan.ClusterIP:
		return "cluster_ip"
	case plan.ExternalIP:
		return "external_ip"
	case plan.LoadBalancer:
		return "load_balancer"
	case plan.NodePort:
		return "node_port"
	}
	return "unknown"
}

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
