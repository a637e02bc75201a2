package metrics

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"

	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/report"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options configure Metrics.
type Options struct {
	Registry *prometheus.Registry
	// Families are the families that this node serves. One pass carries all of them, but the metrics of upstream have a
	// series for each.
	Families          []state.Family
	Version, Revision string // of the build
	// Changes returns how many changes there were.
	Changes func() state.ChangeCounts
	// Seconds returns how much processor time namespaces have used: those that have used most.
	Seconds func() map[string]float64
}

// Metrics are all metrics of the proxy. All methods may be called from any goroutine, PassDone from one at a time.
type Metrics struct {
	families []state.Family
	registry *prometheus.Registry
	served   *dataplane.AllTotals // as the metrics have it; nil: not yet
	verdict
	upstream
	outliers outliers
}

// New registers all metrics. An error means that the registry already has one of the names.
func New(o Options) (*Metrics, error) {
	r := &registrar{registry: o.Registry}
	m := &Metrics{
		families: o.Families, registry: o.Registry, verdict: newVerdict(r), upstream: newUpstream(r), outliers: newOutliers(r),
	}
	registerChanges(r, o.Changes)
	r.register(namespaces{o.Seconds, prometheus.NewDesc("verdict_namespace_seconds_total",
		"Processor time that the changes of a namespace took: planning, in the kernel and beside. Only the ten namespaces with most have a series.",
		[]string{"namespace"}, nil)})
	r.gauge("verdict_build_info", "Always 1. The labels name the build.", "version", "revision", "goversion").
		WithLabelValues(o.Version, o.Revision, runtime.Version()).Set(1)
	r.register(collectors.NewGoCollector())
	r.register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if r.err != nil {
		return nil, fmt.Errorf("register metrics: %w", r.err)
	}
	m.zero()
	m.outliers.zero()
	return m, nil
}

// keepFor is how long an answer serves others that ask.
const keepFor = time.Second

// Handler serves the registry as text and as protocol buffers, and ignores queries. It encodes one answer at a time, and
// others that ask within a second get the same: any user of a node may ask, as often as they like.
func (m *Metrics) Handler() http.Handler {
	encode := promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
	var one sync.Mutex
	kept := map[answerKind]*answer{}
	get := func(kind answerKind) *answer {
		one.Lock()
		defer one.Unlock()
		a := kept[kind]
		if a == nil {
			a = &answer{header: http.Header{}, status: http.StatusOK}
			encode.ServeHTTP(a, kind.request())
			kept[kind] = a
			time.AfterFunc(keepFor, func() {
				one.Lock()
				defer one.Unlock()
				delete(kept, kind)
			})
		}
		return a
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := get(kindOf(r))
		maps.Copy(w.Header(), a.header)
		w.WriteHeader(a.status)
		_, _ = w.Write(a.Bytes()) // fails only if the client has gone
	})
}

// answerKind is what a client may choose. There are few, so that nobody has a new answer for each request.
type answerKind struct{ protobuf, gzip bool }

func kindOf(r *http.Request) answerKind {
	return answerKind{
		protobuf: expfmt.NegotiateAccept(r.Header, expfmt.DefaultAcceptedFormats()...).FormatType() == expfmt.TypeProtoDelim,
		gzip:     strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"),
	}
}

func (k answerKind) request() *http.Request {
	r := &http.Request{URL: &url.URL{}, Header: http.Header{}}
	if k.protobuf {
		r.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	}
	if k.gzip {
		r.Header.Set("Accept-Encoding", "gzip")
	}
	return r
}

// answer is an http.ResponseWriter that keeps what is written.
type answer struct {
	bytes.Buffer
	header http.Header
	status int
}

func (a *answer) Header() http.Header    { return a.header }
func (a *answer) WriteHeader(status int) { a.status = status }

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
		m.lastQueued.WithLabelValues(f.Version()).Set(seconds(since))
	}
}

// Problems records how many objects of each kind have problems, and how many problems each field of a kind has.
func (m *Metrics) Problems(p report.Problems) {
	m.problems.Reset()
	for field, n := range p.Fields {
		m.problems.WithLabelValues(field[0], field[1]).Set(float64(n))
	}
	for _, kind := range problemKinds {
		m.rejected.WithLabelValues(kind).Set(0)
	}
	for kind, n := range p.Faulty {
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

// FlowsCleaned counts a search in the connection tracking table, for stale UDP flows and for connections without an answer.
func (m *Metrics) FlowsCleaned(results []conntrack.Result) {
	for _, r := range results {
		m.conntrackDuration.WithLabelValues(r.Family.Version()).Observe(r.Took.Seconds())
		m.conntrackDeleted.WithLabelValues(r.Family.Version()).Add(float64(r.Deleted))
		m.outliers.deleted.Add(float64(r.Unanswered))
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// maxProcesses bounds the names that the label process has: each process chooses its own name.
const maxProcesses = 16

// Values of the label process that are not names.
const (
	unknownProcess = "unknown" // no message of the kernel named it
	otherProcess   = "other"   // it came after maxProcesses others
)

// processNames are the names that the label process has.
type processNames struct {
	mu    sync.Mutex
	known map[string]bool
}

// label is the value for a process.
func (p *processNames) label(name string) string {
	if name == "" {
		return unknownProcess
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.known[name] && len(p.known) == maxProcesses {
		return otherProcess
	}
	p.known[name] = true
	return name
}
