package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// outliers are the metrics about endpoints that do not answer.
type outliers struct {
	suspicions *prometheus.CounterVec
	answers    *prometheus.CounterVec
	failures   *prometheus.CounterVec
	endpoints  *prometheus.GaugeVec
	deleted    prometheus.Counter
	checks     *prometheus.GaugeVec
	checked    *prometheus.CounterVec
	faults     *prometheus.CounterVec
	onBackups  prometheus.Gauge
}

func newOutliers(r *registrar) outliers {
	return outliers{
		suspicions: r.counter("verdict_outlier_suspicions_total",
			"Suspicions that an endpoint does not answer, by what the kernel noticed.", "reason"),
		answers: r.counter("verdict_outlier_answers_total", "Answers of endpoints under suspicion to questions of this node.", "answer"),
		failures: r.counter("verdict_outlier_failures_total",
			"Endpoints that failed, by why they get connections all the same; empty: they may be ejected.", "held"),
		endpoints: r.gauge("verdict_outlier_endpoints", "Endpoints that are suspected, failed, or ejected from a Service.", "state"),
		deleted: r.counter("verdict_outlier_deleted_connections_total",
			"Connections without an answer that were deleted, so that their clients reach another endpoint.").WithLabelValues(),
		checks:  r.gauge("verdict_checks", "Active checks of endpoints that pass or fail.", "state"),
		checked: r.counter("verdict_check_answers_total", "Answers of endpoints to active checks: good or bad.", "answer"),
		faults: r.counter("verdict_check_failures_total", "Active checks that failed, by the kind of the check and by the reason.",
			"check", "reason"),
		onBackups: r.gauge("verdict_services_on_backups",
			"Services whose backup endpoints get connections, because no other endpoint is good.").WithLabelValues(),
	}
}

// The values of labels.
const (
	outlierSuspected, outlierFailed, outlierEjected = "suspected", "failed", "ejected"

	checkPassing, checkFailing = "passing", "failing"
	answerGood, answerBad      = "good", "bad"
)

// zero creates the series whose labels are known in advance.
func (o *outliers) zero() {
	zero(o.endpoints, outlierSuspected, outlierFailed, outlierEjected)
	zero(o.checks, checkPassing, checkFailing)
	zero(o.checked, answerGood, answerBad)
	zero(o.suspicions, "unanswered", "refusing")
	for _, f := range endpointhealth.CheckFailures() {
		o.faults.WithLabelValues(f.Kind.String(), f.Fault.String())
	}
}

// Health records what happened to endpoints.
func (m *Metrics) Health(r *endpointhealth.Report) {
	o := &m.outliers
	for i := range r.Notes {
		switch n := &r.Notes[i]; n.Kind {
		case checks.SuspicionBegan:
			o.suspicions.WithLabelValues(n.Suspect.Reason.String()).Inc()
		case checks.Fell:
			o.failures.WithLabelValues(string(n.Suspect.Hold)).Inc()
		}
	}
	for a, n := range r.Answers {
		switch {
		case a.Kind == state.CheckOff:
			o.answers.WithLabelValues(a.Fault.String()).Add(float64(n))
		case a.Fault == probe.NoFault:
			o.checked.WithLabelValues(answerGood).Add(float64(n))
		default:
			o.checked.WithLabelValues(answerBad).Add(float64(n))
			o.faults.WithLabelValues(a.Kind.String(), a.Fault.String()).Add(float64(n))
		}
	}
	o.checks.WithLabelValues(checkPassing).Set(float64(r.Checks - r.Failing))
	o.checks.WithLabelValues(checkFailing).Set(float64(r.Failing))
	o.onBackups.Set(float64(r.OnBackups))
	if len(r.Notes)+len(r.Moves) > 0 {
		o.count(r.Statuses)
	}
}

// count sets how many endpoints are in each state.
func (o *outliers) count(list []endpointhealth.Status) {
	var suspected, failed, ejected int
	for i := range list {
		switch list[i].State {
		case endpointhealth.StateSuspected:
			suspected++
		case endpointhealth.StateFailed:
			failed++
		}
		if list[i].Ejected {
			ejected++
		}
	}
	o.endpoints.WithLabelValues(outlierSuspected).Set(float64(suspected))
	o.endpoints.WithLabelValues(outlierFailed).Set(float64(failed))
	o.endpoints.WithLabelValues(outlierEjected).Set(float64(ejected))
}
