// Package measure holds what the two benchmark programs share: samples and their quantiles, what a process costs, network
// namespaces joined to paths for connections, tables and the plot.
//
// It knows nothing of Verdict or of kube-proxy; it measures what it is pointed at.
package measure
