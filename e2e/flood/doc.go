// Package flood tests what tenants cost each other: floods of packets and of changes, a full table of connections,
// and a daemon that has little memory. The daemon, the kernel and the packets are real.
//
//	server_test.go    an API server that has its objects in memory, so that it can send as fast as the daemon reads
//	objects_test.go   the objects
//	bed_test.go       the network, the daemon, and a Service that others must not disturb
//	packets_test.go   floods of packets with forged sources; entries of connection tracking
//	stopwatch_test.go how long a connection takes, and a change
//	flood_test.go     tests of floods
//	memory_test.go    a memory limit
//	farm_test.go      endpoints by the thousand, good and bad, and Services that have them checked
//	checks_test.go    tests of active checks: their flows
//	forgery_test.go   tests of active checks: whom the node must not ask
//	bench_test.go     what floods cost others (make bench-flood)
//	checks_bench_test.go what active checks cost others (make bench-checks)
//	converted_bench_test.go 2,000 balancers that were converted from keepalived (make bench-converted)
//	hostile_test.go   what a tenant with huge objects costs (make bench-hostile)
//	attacks_test.go   what cost others much time once: objects, packets, readers
//	million_bench_test.go the largest cluster, without any flood (make bench-million)
//	attacks_bench_test.go what attacks cost others (make bench-hostile)
//	control_test.go   processes beside: what the machine itself costs, readers of a page
package flood
