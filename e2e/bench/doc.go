// Package bench measures the cost of Verdict's own work, from an event in the state store until the kernel has the
// change. It uses the real store, planner, loop and nft engine, in its own network namespaces and without an API
// server. "make bench" runs it, and benchstat prints its tables. e2e/benchupstream measures what clients of an API server
// see.
//
//	bench_test.go    the benchmarks: first synchronizations, changes, bursts and streams of them, connections
//	least_test.go    the least change of nf_tables, for comparison
//	objects_test.go  Services and EndpointSlices, and changes of them
//	world_test.go    a store, a loop and an engine in a namespace
//	figures_test.go  runs the benchmarks with small clusters, and checks their figures
package bench
