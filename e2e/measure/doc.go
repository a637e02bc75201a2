// Package measure holds the parts that both benchmark programs use.
//
//	sample.go    measurements and their quantiles
//	lines.go     measurements as lines of Go benchmarks, and the medians of them
//	path.go      a client, a node and a server in network namespaces; connections over them
//	compare.go   connections through a proxy's rules, through one rule, and without rules
//	process.go   CPU time and memory of a process, memory of the kernel
//	machine.go   the machine that was measured
//	progress.go  what a program is doing; the sizes of clusters as a flag
//	table.go     Markdown tables; plot.go and timeline.go: SVG pictures
//
// It knows nothing of Verdict or of kube-proxy.
package measure
