package metrics

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options configure Metrics.
type Options struct {
	Registry *prometheus.Registry
	// Families are the families that this node serves. One pass carries all of them, but the metrics of upstream have a
	// series for each.
	Families          []state.Family
	Version, Revision string // of the build
	// Changes returns how many changes there were; nil: none.
	Changes func() state.ChangeCounts
	// Schedulers are the names of all schedulers, in the order of Served.Pools.
	Schedulers []string
}

// Metrics are all metrics of the proxy. All methods may be called from any goroutine.
type Metrics struct {
	families   []state.Family
	schedulers []string
	registry   *prometheus.Registry
	verdict
	upstream
	outliers outliers
}

// New registers all metrics. An error means that the registry already has one of the names.
func New(o Options) (*Metrics, error) {
	if o.Changes == nil {
		o.Changes = func() state.ChangeCounts { return state.ChangeCounts{} }
	}
	m := &Metrics{
		families: o.Families, schedulers: o.Schedulers, registry: o.Registry, verdict: newVerdict(), upstream: newUpstream(o.Changes),
		outliers: newOutliers(),
	}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "verdict_build_info",
		Help:        "Always 1. The labels name the build.",
		ConstLabels: prometheus.Labels{"version": o.Version, "revision": o.Revision, "goversion": runtime.Version()},
	})
	build.Set(1)
	all := []prometheus.Collector{
		build, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
	all = slices.Concat(all, m.verdict.collectors(), m.upstream.collectors(), m.outliers.collectors())
	var errs []error
	for _, c := range all {
		errs = append(errs, o.Registry.Register(c))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	m.zero()
	m.outliers.zero()
	return m, nil
}

// Handler serves the registry in the Prometheus formats.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// The outcomes of a pass and of a transaction, as values of the label outcome.
const (
	Applied  = "applied"
	Rejected = "rejected"
	Unknown  = "unknown"
)

// outcomes lists them in the order of Pass.Transactions.
func outcomes() [3]string { return [...]string{Applied, Rejected, Unknown} }

// Pass is what one pass over the pending changes did.
type Pass struct {
	Outcome        string // Applied, Rejected or Unknown
	Full           bool   // it compared or wrote whole tables
	Started        time.Time
	Duration       time.Duration
	Added, Deleted int // elements; counted only if the pass was applied

	// Planning, Encode and Kernel are parts of Duration: until the engines had all plans, and what nft needed before and
	// in the system calls.
	Planning, Encode, Kernel time.Duration
	Transactions             [3]int // by outcome
	Pauses                   int    // namespaces that have to wait
}

// PassDone counts a pass.
func (m *Metrics) PassDone(p Pass) {
	m.passes.WithLabelValues(p.Outcome).Inc()
	m.passDuration.Observe(p.Duration.Seconds())
	m.transacted(&p)
	m.pauses.Add(float64(p.Pauses))
	kind := m.partialDuration
	if p.Full {
		kind = m.fullDuration
	}
	for _, f := range m.families {
		m.syncDuration.WithLabelValues(f.String()).Observe(p.Duration.Seconds())
		kind.WithLabelValues(f.String()).Observe(p.Duration.Seconds())
	}
	if p.Outcome != Applied {
		m.failed()
		return
	}
	m.elements.WithLabelValues("add").Add(float64(p.Added))
	m.elements.WithLabelValues("delete").Add(float64(p.Deleted))
	at := seconds(p.Started.Add(p.Duration))
	m.lastApplied.Set(at)
	for _, f := range m.families {
		m.lastSync.WithLabelValues(f.String()).Set(at)
	}
}

// transacted counts the transactions of a pass, and how long their stages took. A pass without a transaction counts in
// neither.
func (m *Metrics) transacted(p *Pass) {
	if p.Transactions == [3]int{} {
		return
	}
	for i, outcome := range outcomes() {
		m.transactions.WithLabelValues(outcome).Add(float64(p.Transactions[i]))
	}
	m.stages.WithLabelValues("plan").Observe(p.Planning.Seconds())
	m.stages.WithLabelValues("encode").Observe(p.Encode.Seconds())
	m.stages.WithLabelValues("kernel").Observe(p.Kernel.Seconds())
}

// failed counts a pass that is not in the kernel.
func (m *Metrics) failed() {
	for _, f := range m.families {
		m.syncFailures.WithLabelValues(f.String()).Inc()
	}
}

// Readable records whether the latest attempt to read a resource of the Kubernetes API worked.
func (m *Metrics) Readable(resource string, works bool) {
	value := 0.0
	if works {
		value = 1
	} else {
		m.readFailures.WithLabelValues(resource).Inc()
	}
	m.readable.WithLabelValues(resource).Set(value)
}

// EventDropped counts a Kubernetes Event that is not raised.
func (m *Metrics) EventDropped() { m.dropped.Inc() }

// Pending records since when changes wait for a pass.
func (m *Metrics) Pending(since time.Time) {
	for _, f := range m.families {
		m.lastQueued.WithLabelValues(f.String()).Set(seconds(since))
	}
}

// Programmed records how long the change of an endpoint took, from the trigger time that the endpoint controller wrote
// until the kernel had it. The caller reports only changes that happened while the proxy ran, because those that it
// found when it started were not late.
func (m *Metrics) Programmed(f state.Family, took time.Duration) {
	m.programming.WithLabelValues(f.String()).Observe(took.Seconds())
}

// Served is what one engine serves.
type Served struct {
	Frontends [plan.NodePort + 1]int
	Endpoints int
	Pools     []int // by scheduler, in the order of Options.Schedulers
}

// Served records what one engine ("nft", "ipvs") serves after a pass. A scheduler has a series from the time at which
// it first has a pool.
func (m *Metrics) Served(engine string, s Served) {
	for kind, n := range s.Frontends {
		m.frontends.WithLabelValues(kindLabel(plan.FrontendKind(kind)), engine).Set(float64(n))
	}
	m.endpoints.WithLabelValues(engine).Set(float64(s.Endpoints))
	for i, n := range s.Pools[:min(len(s.Pools), len(m.schedulers))] {
		if key := [2]string{engine, m.schedulers[i]}; n > 0 || m.seen[key] {
			m.seen[key] = true
			m.pools.WithLabelValues(key[0], key[1]).Set(float64(n))
		}
	}
}

// NoLocal records how many service ports of a family have endpoints, none of which a policy allows.
func (m *Metrics) NoLocal(f state.Family, internal, external int) {
	m.noLocal.WithLabelValues("internal", f.String()).Set(float64(internal))
	m.noLocal.WithLabelValues("external", f.String()).Set(float64(external))
}

// Problems records how many objects of each kind have problems, and how many problems each field of a kind has.
func (m *Metrics) Problems(objects map[string]int, fields map[[2]string]int) {
	m.problems.Reset()
	for field, n := range fields {
		m.problems.WithLabelValues(field[0], field[1]).Set(float64(n))
	}
	for _, kind := range problemKinds {
		m.rejected.WithLabelValues(kind).Set(0)
	}
	for kind, n := range objects {
		m.rejected.WithLabelValues(kind).Set(float64(n))
	}
}

// Interfered counts what another process did to the tables or to virtual servers: the outcome is repaired, failed or
// reported. Process is its name; "": nobody knows.
func (m *Metrics) Interfered(process, outcome string, took time.Duration) {
	m.interferences.WithLabelValues(outcome).Inc()
	m.byProcess.WithLabelValues(m.processes.label(process)).Inc()
	if outcome != "reported" {
		m.repairDuration.Observe(took.Seconds())
	}
}

// Answered counts an answer of /healthz or /livez.
func (m *Metrics) Answered(path string, code int) {
	switch path {
	case "/healthz":
		m.healthz.WithLabelValues(strconv.Itoa(code)).Inc()
	case "/livez":
		m.livez.WithLabelValues(strconv.Itoa(code)).Inc()
	}
}

// FlowsCleaned counts a search for stale UDP flows in the connection tracking table.
func (m *Metrics) FlowsCleaned(f state.Family, took time.Duration, deleted int) {
	m.conntrackDuration.WithLabelValues(f.String()).Observe(took.Seconds())
	m.conntrackDeleted.WithLabelValues(f.String()).Add(float64(deleted))
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
