// Package measure holds the parts that benchmarks share.
//
//	sample.go    measurements, their quantiles, and figures of benchmarks
//	path.go      a client, a node and a server in network namespaces; connections over them
//	compare.go   connections through a proxy's rules, through one rule, and without rules
//	process.go   CPU time and memory of a process, memory of the kernel
//	machine.go   the machine that was measured
//	table.go     Markdown tables
//	plot.go      SVG pictures: lines over logarithmic axes
//
// It knows nothing of Verdict or of kube-proxy.
package measure
