// Package restclient gives the daemon the metrics of client-go that upstream's components have: rest_client_*. Upstream's own
// package fills them, in a global registry.
package restclient

import (
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"k8s.io/client-go/tools/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/restclient" // has client-go fill the metrics
)

const prefix = "rest_client_"

// Register adds the metrics to a registry.
func Register(r prometheus.Registerer) error {
	metrics.EnsureRegistered()
	global, ok := legacyregistry.Registerer().(*prometheus.Registry)
	if !ok {
		return errors.New("register metrics of the API client: upstream's registry is not one of Prometheus")
	}
	// Reading these would cost more than all else, and the daemon has its own.
	global.Unregister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	global.Unregister(collectors.NewGoCollector(collectors.WithGoCollectorRuntimeMetrics(collectors.MetricsAll)))
	if err := r.Register(collector{global}); err != nil {
		return fmt.Errorf("register metrics of the API client: %w", err)
	}
	return nil
}

// collector has the metrics of the global registry whose names have the prefix.
type collector struct{ global *prometheus.Registry }

// Describe implements prometheus.Collector.
func (c collector) Describe(to chan<- *prometheus.Desc) {
	pass(c.global.Describe, to, func(d *prometheus.Desc) *prometheus.Desc { return d })
}

// Collect implements prometheus.Collector.
func (c collector) Collect(to chan<- prometheus.Metric) {
	pass(c.global.Collect, to, prometheus.Metric.Desc)
}

// pass sends what a function sends, without what has another name. A description shows its name only as text.
func pass[T any](from func(chan<- T), to chan<- T, describe func(T) *prometheus.Desc) {
	all := make(chan T)
	go func() {
		from(all)
		close(all)
	}()
	for each := range all {
		if strings.HasPrefix(describe(each).String(), `Desc{fqName: "`+prefix) {
			to <- each
		}
	}
}
