// Package kernelmetrics shows to Prometheus what the kernel counts. It reads on each scrape, and only as much as a limit
// allows: a node with more frontends shows no connections.
//
//	collector.go  the metrics that a scrape reads
//	ports.go      connections and refusals of service ports
//
// The package reads with sockets of its own, so a scrape never waits for the loop, nor the loop for a scrape.
package kernelmetrics
