// Command bench measures what Verdict's own work costs, from an event in the state store until the kernel has it, for
// clusters of several sizes: the real store, planner, loop and nft engine, in network namespaces of its own, without an
// API server. "make bench" runs it. What clients of an API server see is measured by e2e/benchupstream.
//
//	main.go     flags; one child process for each size, so that memory is that of the size alone
//	size.go     everything that is measured at one size
//	cluster.go  Services and EndpointSlices, and changes to them
//	world.go    store, loop and engine on a namespace
//	change.go   single changes, and a burst of them
//	least.go    the least change that nf_tables can make, for comparison
//	load.go     CPU time under a stream of changes; memory
//	large.go    single large Services
//	profile.go  CPU and heap profiles instead of numbers
//	result.go   the numbers, as JSON; report.go: as tables
package main
