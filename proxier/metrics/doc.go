// Package metrics counts for Prometheus what the proxy does. Where upstream kube-proxy has a metric with the same
// meaning, this package uses the name, labels and buckets of that metric, so that dashboards and alerts keep working.
//
//	names.go      the metrics, with names and help texts
//	metrics.go    what the loop reports; the names of processes that interfere
//	outliers.go   endpoints that do not answer
//
// The package has no globals and measures nothing itself. The loop reports, and the caller provides the registry.
package metrics
