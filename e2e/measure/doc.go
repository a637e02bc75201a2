// Package measure holds the parts that the two benchmark programs share.
//
//	sample.go     measurements and their quantiles
//	compare.go    connections over several paths, in turn
//	process.go    CPU time and memory of a process
//	path.go       a client, a node and a server in namespaces; namespace.go: network namespaces
//	machine.go    the machine on which a benchmark runs
//	progress.go   messages while a benchmark runs
//	table.go      results as a table; plot.go: as a plot
//
// It knows nothing of Verdict or of kube-proxy.
package measure
