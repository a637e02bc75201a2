// Package metrics counts for Prometheus what the proxy does. Where upstream kube-proxy has a metric with the same
// meaning, this package uses the name, labels and buckets of that metric, so that dashboards and alerts keep working.
//
//	verdict.go    the metrics that only this proxy has, and what a pass counts
//	names.go      the metrics of upstream
//	metrics.go    what else is reported; the names of processes that interfere
//	outliers.go   endpoints that do not answer
//
// The package has no globals and measures nothing itself. The loop reports, and the caller provides the registry.
package metrics
