package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
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

// OutlierStates are the values of the label state.
const (
	OutlierSuspected = "suspected"
	OutlierFailed    = "failed"
	OutlierEjected   = "ejected"
)

// zero creates the series whose labels are known in advance.
func (o *outliers) zero() {
	for _, s := range []string{OutlierSuspected, OutlierFailed, OutlierEjected} {
		o.endpoints.WithLabelValues(s)
	}
	for _, s := range []string{checkPassing, checkFailing} {
		o.checks.WithLabelValues(s)
	}
	for _, a := range []string{answerGood, answerBad} {
		o.checked.WithLabelValues(a)
	}
	for _, f := range endpointhealth.CheckFailures() {
		o.faults.WithLabelValues(f.Kind.String(), f.Fault.String())
	}
	o.suspicions.WithLabelValues("unanswered")
	o.suspicions.WithLabelValues("refusing")
}

// Suspected counts a suspicion.
func (m *Metrics) Suspected(reason string) { m.outliers.suspicions.WithLabelValues(reason).Inc() }

// OutlierAnswered counts an answer.
func (m *Metrics) OutlierAnswered(answer string) { m.outliers.answers.WithLabelValues(answer).Inc() }

// OutlierFailure counts an endpoint that failed.
func (m *Metrics) OutlierFailure(held string) { m.outliers.failures.WithLabelValues(held).Inc() }

// Outliers sets how many endpoints are in a state.
func (m *Metrics) Outliers(state string, n int) {
	m.outliers.endpoints.WithLabelValues(state).Set(float64(n))
}

// The values of labels about active checks.
const (
	checkPassing, checkFailing = "passing", "failing"
	answerGood, answerBad      = "good", "bad"
)

// Checks sets how many active checks there are, and how many of them fail.
func (m *Metrics) Checks(all, failing int) {
	m.outliers.checks.WithLabelValues(checkPassing).Set(float64(all - failing))
	m.outliers.checks.WithLabelValues(checkFailing).Set(float64(failing))
}

// ChecksPassed counts good answers to active checks.
func (m *Metrics) ChecksPassed(n int) { m.outliers.checked.WithLabelValues(answerGood).Add(float64(n)) }

// ChecksFailed counts bad answers to active checks.
func (m *Metrics) ChecksFailed(f endpointhealth.CheckFailure, n int) {
	m.outliers.checked.WithLabelValues(answerBad).Add(float64(n))
	m.outliers.faults.WithLabelValues(f.Kind.String(), f.Fault.String()).Add(float64(n))
}

// OnBackups sets how many Services are on backup endpoints.
func (m *Metrics) OnBackups(n int) { m.outliers.onBackups.Set(float64(n)) }
