package metrics

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/report"
)

// verdict are the metrics that only this proxy has.
type verdict struct {
	passes       *prometheus.CounterVec
	passDuration prometheus.Observer
	changes      *prometheus.HistogramVec
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
	repairDuration prometheus.Observer
}

func newVerdict(r *registrar) verdict {
	return verdict{
		passes: r.counter("verdict_passes_total",
			"Passes over the pending changes, by their outcome in the kernel.", "outcome"),
		passDuration: r.histogram("verdict_pass_duration_seconds",
			"Duration of a pass, from the first plan to the kernel's answer.",
			prometheus.ExponentialBuckets(0.00005, 2, 18)).WithLabelValues(), // 50 µs to 6.6 s
		changes: r.histogram("verdict_change_duration_seconds",
			"Time from when the process had read a change until the kernel had it, by what changed. What was there at the start is not counted.",
			prometheus.ExponentialBuckets(0.00025, 2, 20), "change"), // 0.25 ms to 131 s
		transactions: r.counter("verdict_transactions_total", "nf_tables transactions that were sent, by outcome.", "outcome"),
		stages: r.histogram("verdict_transaction_duration_seconds",
			"Duration of the stages of a pass that sent a transaction: plan, encode (what nft does before the system call) and kernel.",
			prometheus.ExponentialBuckets(0.00001, 2.5, 15), "stage"), // 10 µs to 3.7 s
		elements: r.counter("verdict_element_operations_total",
			"Elements of maps and sets that were added to the kernel or deleted from it.", "op"),
		pauses: r.counter("verdict_namespace_pauses_total",
			"How often the changes of a namespace had to wait because it changed too much. The log names the namespace.").WithLabelValues(),
		frontends: r.gauge("verdict_frontends", "Frontends in the kernel.", "kind", "engine"),
		endpoints: r.gauge("verdict_endpoints",
			"Endpoints in the kernel. An endpoint counts once for every Service port and family that it serves.", "engine"),
		pools: r.gauge("verdict_pools",
			"Pools of endpoints in the kernel, by engine and by the scheduler that they have, which may differ from what was asked for.",
			"engine", "scheduler"),
		seen: map[[2]string]bool{},
		problems: r.gauge("verdict_problems",
			"Parts of objects that cannot be honored, by the field that is the reason. The log and the Events name them.", "kind", "field"),
		rejected: r.gauge("verdict_rejected_objects",
			"Objects of which a part cannot be honored. The log and the Events name them.", "kind"),
		dropped: r.counter("verdict_events_dropped_total",
			"Kubernetes Events that were not raised, because too many of their namespace waited.").WithLabelValues(),
		lastApplied: r.gauge("verdict_last_applied_timestamp_seconds", "End of the latest pass that is in the kernel.").WithLabelValues(),
		readable: r.gauge("verdict_api_resource_readable",
			"1 if the resource can be listed and watched at the Kubernetes API, 0 if the latest attempt failed. Known objects stay in force.",
			"resource"),
		readFailures: r.counter("verdict_api_resource_failures_total",
			"Failed attempts to list or watch a resource at the Kubernetes API, and lists that are not used because they are not plausible.",
			"resource"),
		interferences: r.counter("verdict_interferences_total",
			"Changes of the tables or of virtual servers by other processes, by what became of them: repaired, failed or reported only.",
			"outcome"),
		byProcess: r.counter("verdict_interferences_by_process_total",
			"The same changes by the name of the process. A series begins when a process is first seen.", "process"),
		processes: processNames{known: map[string]bool{}},
		repairDuration: r.histogram("verdict_repair_duration_seconds",
			"Duration of a repair, from the event until the kernel has what it should have.",
			prometheus.ExponentialBuckets(0.0005, 2, 14)).WithLabelValues(), // 0.5 ms to 4 s
	}
}

// PassDone counts a pass.
func (m *Metrics) PassDone(p *report.Pass) {
	m.passes.WithLabelValues(p.Result.Outcome.String()).Inc()
	m.passDuration.Observe(p.Duration.Seconds())
	m.transacted(p)
	m.pauses.Add(float64(p.Pauses))
	kind := m.partialDuration
	if p.Result.Full {
		kind = m.fullDuration
	}
	for _, f := range m.families {
		m.syncDuration.WithLabelValues(f.Version()).Observe(p.Duration.Seconds())
		kind.WithLabelValues(f.Version()).Observe(p.Duration.Seconds())
	}
	if p.Result.Err != nil {
		for _, f := range m.families {
			m.syncFailures.WithLabelValues(f.Version()).Inc()
		}
		return
	}
	m.elements.WithLabelValues("add").Add(float64(p.Result.Added))
	m.elements.WithLabelValues("delete").Add(float64(p.Result.Deleted))
	end := p.Started.Add(p.Duration)
	m.lastApplied.Set(seconds(end))
	m.AsWanted(end)
	for _, t := range p.Triggers { // a tenant may write a time that is yet to come
		m.programming.WithLabelValues(t.Family.Version()).Observe(max(0, end.Sub(t.At).Seconds()))
	}
	for _, l := range p.Latencies {
		m.changes.WithLabelValues(l.Change).Observe(l.Took.Seconds())
	}
	m.serves(&p.Totals)
}

// AsWanted records when the kernel was as wanted.
func (m *Metrics) AsWanted(at time.Time) {
	for _, f := range m.families {
		m.lastSync.WithLabelValues(f.Version()).Set(seconds(at))
	}
}

// transacted counts the transactions of a pass, and how long their stages took. A pass without a transaction counts in
// neither.
func (m *Metrics) transacted(p *report.Pass) {
	r := &p.Result
	if r.Transactions == (dataplane.Result{}).Transactions {
		return
	}
	for outcome, n := range r.Transactions {
		m.transactions.WithLabelValues(dataplane.Outcome(outcome).String()).Add(float64(n))
	}
	m.stages.WithLabelValues("plan").Observe(p.Planning.Seconds())
	m.stages.WithLabelValues("encode").Observe(r.Encode.Seconds())
	m.stages.WithLabelValues("kernel").Observe(r.Kernel.Seconds())
}

// serves records what the engines serve. In a stream of changes of endpoints, most passes change little of it. A scheduler
// has a series from the time at which it first has a pool.
func (m *Metrics) serves(t *dataplane.AllTotals) {
	first, was := m.served == nil, dataplane.AllTotals{}
	if !first {
		was = *m.served
	}
	if !first && was == *t {
		return
	}
	served := *t // without the rest of the pass
	m.served = &served
	for i := range t.Engines {
		engine, e, before := dataplane.Engine(i).String(), &t.Engines[i], &was.Engines[i]
		m.endpoints.WithLabelValues(engine).Set(float64(e.Endpoints))
		if first || e.Frontends != before.Frontends {
			for kind, n := range e.Frontends {
				label := strings.ReplaceAll(strings.ToLower(plan.FrontendKind(kind).String()), " ", "_")
				m.frontends.WithLabelValues(label, engine).Set(float64(n))
			}
		}
		if first || e.Pools != before.Pools {
			m.setPools(engine, e)
		}
	}
	if !first && was.NoLocal == t.NoLocal {
		return
	}
	for _, f := range m.families {
		m.noLocal.WithLabelValues("internal", f.Version()).Set(float64(t.NoLocal[f].Internal))
		m.noLocal.WithLabelValues("external", f.Version()).Set(float64(t.NoLocal[f].External))
	}
}

func (m *Metrics) setPools(engine string, e *dataplane.Totals) {
	for i, scheduler := range dataplane.Schedulers() {
		if key := [2]string{engine, scheduler}; e.Pools[i] > 0 || m.seen[key] {
			m.seen[key] = true
			m.pools.WithLabelValues(engine, scheduler).Set(float64(e.Pools[i]))
		}
	}
}
