package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// verdict are the metrics that only this proxy has.
type verdict struct {
	passes       *prometheus.CounterVec
	passDuration prometheus.Histogram
	transactions *prometheus.CounterVec
	stages       *prometheus.HistogramVec
	elements     *prometheus.CounterVec
	frontends    *prometheus.GaugeVec
	endpoints    *prometheus.GaugeVec
	pools        *prometheus.GaugeVec
	seen         map[[2]string]bool // engines and schedulers with a series of pools
	problems     *prometheus.GaugeVec
	rejected     *prometheus.GaugeVec
	dropped      prometheus.Counter
	lastApplied  prometheus.Gauge
	pauses       prometheus.Counter

	readable     *prometheus.GaugeVec
	readFailures *prometheus.CounterVec

	interferences  *prometheus.CounterVec
	byProcess      *prometheus.CounterVec
	processes      processNames
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
		transactions: counter("verdict_transactions_total", "nf_tables transactions that were sent, by outcome.", "outcome"),
		stages: histogram("verdict_transaction_duration_seconds",
			"Duration of the stages of a pass that sent a transaction: plan, encode (what nft does before the system call) and kernel.",
			prometheus.ExponentialBuckets(0.00001, 2.5, 15), "stage"), // 10 µs to 3.7 s
		elements: counter("verdict_element_operations_total",
			"Elements of maps and sets that were added to the kernel or deleted from it.", "op"),
		pauses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "verdict_namespace_pauses_total",
			Help: "How often the changes of a namespace had to wait because it changed too much. The log names the namespace.",
		}),
		frontends: gauge("verdict_frontends", "Frontends in the kernel.", "kind", "engine"),
		endpoints: gauge("verdict_endpoints",
			"Endpoints in the kernel. An endpoint counts once for every Service port and family that it serves.", "engine"),
		pools: gauge("verdict_pools",
			"Pools of endpoints in the kernel, by engine and by the scheduler that they have, which may differ from what was asked for.",
			"engine", "scheduler"),
		seen: map[[2]string]bool{},
		problems: gauge("verdict_problems",
			"Parts of objects that cannot be honored, by the field that is the reason. The log and the Events name them.", "kind", "field"),
		rejected: gauge("verdict_rejected_objects",
			"Objects of which a part cannot be honored. The log and the Events name them.", "kind"),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "verdict_events_dropped_total",
			Help: "Kubernetes Events that were not raised, because too many of their namespace waited.",
		}),
		lastApplied: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "verdict_last_applied_timestamp_seconds",
			Help: "End of the latest pass that is in the kernel.",
		}),
		readable: gauge("verdict_api_resource_readable",
			"1 if the resource can be listed and watched at the Kubernetes API, 0 if the latest attempt failed. Known objects stay in force.",
			"resource"),
		readFailures: counter("verdict_api_resource_failures_total",
			"Failed attempts to list or watch a resource at the Kubernetes API, and lists that are not used because they are not plausible.",
			"resource"),
		interferences: counter("verdict_interferences_total",
			"Changes of the tables or of virtual servers by other processes, by what became of them: repaired, failed or reported only.",
			"outcome"),
		byProcess: counter("verdict_interferences_by_process_total",
			"The same changes by the name of the process. A series begins when a process is first seen.", "process"),
		processes: processNames{known: map[string]bool{}},
		repairDuration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "verdict_repair_duration_seconds",
			Help:    "Duration of a repair, from the event until the kernel has what it should have.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14), // 0.5 ms to 4 s
		}),
	}
}

func (v *verdict) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		v.passes, v.passDuration, v.transactions, v.stages, v.pools, v.problems, v.elements, v.frontends, v.endpoints, v.rejected, v.dropped,
		v.lastApplied, v.pauses,
		v.interferences, v.byProcess, v.repairDuration, v.readable, v.readFailures,
	}
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
	changes                       []prometheus.Collector
}

func newUpstream(changes func() state.ChangeCounts) upstream {
	const family = "ip_family"
	fromMillisecond := prometheus.ExponentialBuckets(0.001, 2, 15)
	return upstream{
		syncDuration: histogram("kubeproxy_sync_proxy_rules_duration_seconds",
			"Duration of a pass. One pass carries both families, so their series are equal.", fromMillisecond, family),
		fullDuration: histogram("kubeproxy_sync_full_proxy_rules_duration_seconds",
			"Duration of a pass that compared or wrote whole tables.", fromMillisecond, family),
		partialDuration: histogram("kubeproxy_sync_partial_proxy_rules_duration_seconds",
			"Duration of a pass that wrote only what changed.", fromMillisecond, family),
		syncFailures: counter("kubeproxy_sync_proxy_rules_nftables_sync_failures_total",
			"Passes that are not in the kernel.", family),
		noLocal: gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total",
			"Service ports with endpoints, none of which the traffic policy Local allows.", "traffic_policy", family),
		changes: changeMetrics(changes),
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
	return append([]prometheus.Collector{
		u.syncDuration, u.fullDuration, u.partialDuration, u.syncFailures, u.programming, u.lastSync, u.lastQueued, u.noLocal,
		u.healthz, u.livez, u.conntrackDuration, u.conntrackDeleted,
	}, u.changes...)
}

// changeMetrics read the counts on each scrape.
func changeMetrics(counts func() state.ChangeCounts) []prometheus.Collector {
	total := func(kind, help string, value func(state.ChangeCounts) uint64) prometheus.Collector {
		name := "kubeproxy_sync_proxy_rules_" + kind + "_changes_total"
		return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value(counts())) })
	}
	pending := func(kind, help string, value func(state.ChangeCounts) int) prometheus.Collector {
		name := "kubeproxy_sync_proxy_rules_" + kind + "_changes_pending"
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value(counts())) })
	}
	return []prometheus.Collector{
		total("service", "Changes of Services.", func(c state.ChangeCounts) uint64 { return c.Services }),
		total("endpoint", "Changes of EndpointSlices.", func(c state.ChangeCounts) uint64 { return c.Endpoints }),
		pending("service", "Services with changes that the kernel does not have.",
			func(c state.ChangeCounts) int { return c.PendingServices }),
		pending("endpoint", "Services with changes of endpoints that the kernel does not have.",
			func(c state.ChangeCounts) int { return c.PendingEndpoints }),
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
	for _, outcome := range outcomes() {
		m.passes.WithLabelValues(outcome)
		m.transactions.WithLabelValues(outcome)
	}
	for _, outcome := range []string{"repaired", "failed", "reported"} {
		m.interferences.WithLabelValues(outcome)
	}
	for _, stage := range []string{"plan", "encode", "kernel"} {
		m.stages.WithLabelValues(stage)
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
		m.fullDuration.WithLabelValues(f.String())
		m.partialDuration.WithLabelValues(f.String())
		m.syncFailures.WithLabelValues(f.String())
		m.NoLocal(f, 0, 0)
		m.programming.WithLabelValues(f.String())
		m.conntrackDuration.WithLabelValues(f.String())
		m.conntrackDeleted.WithLabelValues(f.String())
	}
	m.Problems(nil, nil)
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
