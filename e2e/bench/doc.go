// Command bench measures the cost of Verdict's own work, from an event in the state store until the kernel has the
// change. It uses the real store, planner, loop and nft engine, in its own network namespaces and without an API
// server. "make bench" runs it. e2e/benchupstream measures what clients of an API server see.
//
// Every measurement is a line in the format of Go benchmarks, which -save keeps for benchstat. Measurements that start
// from a new world are Go benchmarks themselves (testing.B) and also run under go test. The others share one world, and
// are made in turn without the garbage collection that testing.B adds, which would empty the processor's caches.
//
//	main.go     flags; one child process for each size, so that each size has its own memory
//	size.go     everything that is measured at one size
//	large.go    large Services
//	change.go   single changes, and a burst of them
//	least.go    the least change of nf_tables, for comparison
//	load.go     CPU time under a stream of changes; memory
//	cluster.go  Services and EndpointSlices, and changes of them
//	world.go    a store, a loop and an engine in a namespace
//	run.go      Go benchmarks as part of this program
//	report.go   the medians as tables
package main
