package metrics

import (
	"errors"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// registrar makes metrics and registers them.
type registrar struct {
	registry *prometheus.Registry
	err      error // what the registry refused
}

func (r *registrar) register(c prometheus.Collector) {
	r.err = errors.Join(r.err, r.registry.Register(c))
}

func (r *registrar) counter(name, help string, labels ...string) *prometheus.CounterVec {
	v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	r.register(v)
	return v
}

func (r *registrar) gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	v := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	r.register(v)
	return v
}

func (r *registrar) histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	r.register(v)
	return v
}

// upstream are the metrics that kube-proxy has as well.
type upstream struct {
	syncDuration, programming     *prometheus.HistogramVec
	fullDuration, partialDuration *prometheus.HistogramVec
	syncFailures                  *prometheus.CounterVec
	lastSync, lastQueued          *prometheus.GaugeVec
	noLocal                       *prometheus.GaugeVec
	healthz, livez                *prometheus.CounterVec
	conntrackDuration             *prometheus.HistogramVec
	conntrackDeleted              *prometheus.CounterVec
}

func newUpstream(r *registrar) upstream {
	const family = "ip_family"
	fromMillisecond := prometheus.ExponentialBuckets(0.001, 2, 15)
	return upstream{
		syncDuration: r.histogram("kubeproxy_sync_proxy_rules_duration_seconds",
			"Duration of a pass. One pass carries both families, so their series are equal.", fromMillisecond, family),
		fullDuration: r.histogram("kubeproxy_sync_full_proxy_rules_duration_seconds",
			"Duration of a pass that compared or wrote whole tables.", fromMillisecond, family),
		partialDuration: r.histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds",
			"Duration of a pass that wrote only what changed.", fromMillisecond, family),
		syncFailures: r.counter("kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
			"Passes that are not in the kernel.", family),
		noLocal: r.gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total",
			"Service ports with endpoints, none of which the traffic policy Local allows.", "traffic_policy", family),
		programming: r.histogram("kubeproxy_network_programming_duration_seconds",
			"Time from the change of an endpoint, as its controller recorded it, until the kernel had it.", programmingBuckets(), family),
		lastSync: r.gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds",
			"End of the latest pass that is in the kernel, or of a later check that found it as wanted while no change waited.", family),
		lastQueued: r.gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds",
			"Time since which changes wait or waited for the latest pass.", family),
		healthz: r.counter("kubeproxy_proxy_healthz_total", "Answers of /healthz by HTTP status.", "code"),
		livez:   r.counter("kubeproxy_proxy_livez_total", "Answers of /livez by HTTP status.", "code"),
		conntrackDuration: r.histogram("kubeproxy_conntrack_reconciler_sync_duration_seconds",
			"Duration of a search for stale UDP flows.", fromMillisecond, family),
		conntrackDeleted: r.counter("kubeproxy_conntrack_reconciler_deleted_entries_total",
			"Stale UDP flows deleted from the connection tracking table.", family),
	}
}

// registerChanges registers metrics that read the counts on each scrape.
func registerChanges(r *registrar, counts func() state.ChangeCounts) {
	total := func(kind, help string, value func(state.ChangeCounts) uint64) {
		name := "kubeproxy_sync_proxy_rules_" + kind + "_changes_total"
		r.register(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(counts())) }))
	}
	pending := func(kind, help string, value func(state.ChangeCounts) int) {
		name := "kubeproxy_sync_proxy_rules_" + kind + "_changes_pending"
		r.register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(counts())) }))
	}
	total("service", "Changes of Services.", func(c state.ChangeCounts) uint64 { return c.Services })
	total("endpoint", "Changes of EndpointSlices.", func(c state.ChangeCounts) uint64 { return c.Endpoints })
	pending("service", "Services with changes that the kernel does not have.", func(c state.ChangeCounts) int { return c.PendingServices })
	pending("endpoint", "Services with changes of endpoints that the kernel does not have.",
		func(c state.ChangeCounts) int { return c.PendingEndpoints })
}

// namespaces collects a series for each of few namespaces. Which ones changes with time, so they are made on each scrape.
type namespaces struct {
	seconds func() map[string]float64
	desc    *prometheus.Desc
}

func (n namespaces) Describe(to chan<- *prometheus.Desc) { to <- n.desc }

func (n namespaces) Collect(to chan<- prometheus.Metric) {
	for namespace, seconds := range n.seconds() {
		to <- prometheus.MustNewConstMetric(n.desc, prometheus.CounterValue, seconds, namespace)
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
	var outcomes, families []string
	for outcome := range (dataplane.Result{}).Transactions {
		outcomes = append(outcomes, dataplane.Outcome(outcome).String())
	}
	for _, f := range m.families {
		families = append(families, f.Version())
		m.noLocal.WithLabelValues("internal", f.Version())
		m.noLocal.WithLabelValues("external", f.Version())
	}
	zero(m.passes, outcomes...)
	zero(m.transactions, outcomes...)
	zero(m.interferences, "repaired", "failed", "reported")
	zero(m.stages, "plan", "encode", "kernel")
	zero(m.elements, "add", "delete")
	changes := state.Changed()
	zero(m.changes, changes[:]...)
	zero(m.healthz, "200", "503")
	zero(m.livez, "200", "503")
	for _, h := range [...]*prometheus.HistogramVec{m.syncDuration, m.fullDuration, m.partialDuration, m.programming, m.conntrackDuration} {
		zero(h, families...)
	}
	zero(m.syncFailures, families...)
	zero(m.conntrackDeleted, families...)
	m.Problems(report.Problems{})
}

// zero creates the series of a metric with one label.
func zero[M any](of interface{ WithLabelValues(...string) M }, values ...string) {
	for _, value := range values {
		of.WithLabelValues(value)
	}
}
