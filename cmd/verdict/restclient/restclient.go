package restclient

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/tools/metrics"
)

// collection has all metrics.
type collection struct {
	duration, requestSize, responseSize, rateLimiter *prometheus.HistogramVec

	requests, retries, execCalls                     *prometheus.CounterVec
	transportCalls, transportReloads, transportSwept *prometheus.CounterVec

	certificateAge  prometheus.Histogram
	certificateTTL  prometheus.GaugeFunc
	transports      prometheus.Gauge
	transportsEnded prometheus.Counter

	expiry atomic.Pointer[time.Time] // of the certificate of an exec plugin; nil: there is none
}

// Register registers the metrics, and has client-go fill them. Client-go takes the metrics of the first call in a
// process only. Clients that were made before are not counted.
func Register(r prometheus.Registerer) error {
	c := newCollection()
	var errs []error
	for _, each := range c.all() {
		errs = append(errs, r.Register(each))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("register metrics of the API client: %w", err)
	}
	metrics.Register(c.options())
	return nil
}

func (c *collection) all() []prometheus.Collector {
	return []prometheus.Collector{
		c.duration, c.requestSize, c.responseSize, c.rateLimiter, c.requests, c.retries, c.execCalls,
		c.transportCalls, c.transportReloads, c.transportSwept, c.certificateAge, c.certificateTTL, c.transports, c.transportsEnded,
	}
}

func newCollection() *collection {
	toMinute := []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}
	bytes := []float64{64, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216}
	c := &collection{
		duration:     histogram("request_duration_seconds", "Duration of requests to the API server.", toMinute, "verb", "host"),
		requestSize:  histogram("request_size_bytes", "Size of requests to the API server.", bytes, "verb", "host"),
		responseSize: histogram("response_size_bytes", "Size of answers of the API server.", bytes, "verb", "host"),
		rateLimiter: histogram("rate_limiter_duration_seconds", "Time that requests waited because of --kube-api-qps.",
			toMinute, "verb", "host"),

		requests:  counter("requests_total", "Requests to the API server.", "code", "method", "host"),
		retries:   counter("request_retries_total", "Repeated requests to the API server.", "code", "verb", "host"),
		execCalls: counter("exec_plugin_call_total", "Calls of the kubeconfig's exec plugin.", "code", "call_status"),

		transportCalls:   counter("transport_create_calls_total", "Requests for a transport, by what the cache answered.", "result"),
		transportReloads: counter("transport_ca_reload_total", "Attempts to read the CA again.", "result", "reason"),
		transportSwept:   counter("transport_cache_gc_calls_total", "Attempts to drop a transport that nobody uses.", "result"),

		transports: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "transport_cache_entries", Help: "Transports in the cache.",
		}),
		transportsEnded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "transport_cert_rotation_gc_calls_total", Help: "Certificate rotations that ended with their transport.",
		}),
		certificateAge: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: prefix + "exec_plugin_certificate_rotation_age", Help: "Age in seconds of an exec plugin's certificate when it was replaced.",
			Buckets: []float64{600, 1800, 3600, 14400, 86400, 604800, 2592000, 7776000, 15552000, 31104000, 124416000},
		}),
	}
	c.certificateTTL = prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: prefix + "exec_plugin_ttl_seconds", Help: "Time until an exec plugin's certificate expires; +Inf: there is none.",
	}, c.untilExpiry)
	return c
}

func (c *collection) untilExpiry() float64 {
	if at := c.expiry.Load(); at != nil {
		return time.Until(*at).Seconds()
	}
	return math.Inf(1)
}

const prefix = "rest_client_"

func counter(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: prefix + name, Help: help, Buckets: buckets}, labels)
}
