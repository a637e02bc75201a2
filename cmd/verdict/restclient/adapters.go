package restclient

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// options are the metrics as client-go calls them.
func (c *collection) options() metrics.RegisterOpts {
	return metrics.RegisterOpts{
		ClientCertExpiry: expiry{c}, ClientCertRotationAge: age{c.certificateAge},
		RequestLatency: latency{c.duration}, RateLimiterLatency: latency{c.rateLimiter},
		RequestSize: size{c.requestSize}, ResponseSize: size{c.responseSize},
		RequestResult: result{c.requests}, RequestRetry: retry{c.retries},
		ExecPluginCalls:       execCall{c.execCalls},
		TransportCacheEntries: entries{c.transports}, TransportCreateCalls: labeled{c.transportCalls},
		TransportCAReloads: reload{c.transportReloads}, TransportCertRotationGCCalls: single{c.transportsEnded},
		TransportCacheGCCalls: labeled{c.transportSwept},
	}
}

type latency struct{ vec *prometheus.HistogramVec }

// Observe implements metrics.LatencyMetric.
func (l latency) Observe(_ context.Context, verb string, u url.URL, took time.Duration) {
	l.vec.WithLabelValues(verb, u.Host).Observe(took.Seconds())
}

type size struct{ vec *prometheus.HistogramVec }

// Observe implements metrics.SizeMetric.
func (s size) Observe(_ context.Context, verb, host string, bytes float64) {
	s.vec.WithLabelValues(verb, host).Observe(bytes)
}

type result struct{ vec *prometheus.CounterVec }

// Increment implements metrics.ResultMetric.
func (r result) Increment(_ context.Context, code, method, host string) {
	r.vec.WithLabelValues(code, method, host).Inc()
}

type retry struct{ vec *prometheus.CounterVec }

// IncrementRetry implements metrics.RetryMetric.
func (r retry) IncrementRetry(_ context.Context, code, verb, host string) {
	r.vec.WithLabelValues(code, verb, host).Inc()
}

type execCall struct{ vec *prometheus.CounterVec }

// Increment implements metrics.CallsMetric.
func (e execCall) Increment(code int, status string) {
	e.vec.WithLabelValues(strconv.Itoa(code), status).Inc()
}

type labeled struct{ vec *prometheus.CounterVec }

// Increment implements metrics.TransportCreateCallsMetric and others of this form.
func (l labeled) Increment(value string) { l.vec.WithLabelValues(value).Inc() }

type reload struct{ vec *prometheus.CounterVec }

// Increment implements metrics.TransportCAReloadsMetric.
func (r reload) Increment(result, reason string) { r.vec.WithLabelValues(result, reason).Inc() }

type single struct{ counter prometheus.Counter }

// Increment implements metrics.TransportCertRotationGCCallsMetric.
func (s single) Increment() { s.counter.Inc() }

type entries struct{ gauge prometheus.Gauge }

// Observe implements metrics.TransportCacheMetric.
func (e entries) Observe(n int) { e.gauge.Set(float64(n)) }

type age struct{ histogram prometheus.Histogram }

// Observe implements metrics.DurationMetric.
func (a age) Observe(d time.Duration) { a.histogram.Observe(d.Seconds()) }

type expiry struct{ c *collection }

// Set implements metrics.ExpiryMetric.
func (e expiry) Set(at *time.Time) { e.c.expiry.Store(at) }
