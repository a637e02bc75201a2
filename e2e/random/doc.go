// Package random changes everything that may change, at random, and expects three things: after each change the kernel has
// what "verdict diff" wants; clients of Services that nobody touches notice nothing; and when the random Services are gone,
// no element of theirs is left.
//
// A test prints its seed. The same seed draws the same changes:
//
//	go test -tags e2e ./e2e/random -time=10m -seed=7
//
// Under a kernel with IPVS, all Services or some of them are served by it, and other programs change virtual servers. With
// a clock that jumps, nobody else uses the machine:
//
//	e2e/ipvskernel/test.sh ./e2e/random -- -test.run ChangesWithIPVS -rounds 100 -clock
//
// It differs from e2e/chaos: objects come from manifests, the daemon restarts in an orderly way or by SIGKILL, and nothing
// fails on purpose. So each step can be checked, and the emulator of e2e/ipvskernel is fast enough.
//
//	main_test.go     the loop
//	driver_test.go   random changes with the default backend; ipvs_test.go: with hybrid and ipvs
//	changes_test.go  what a step changes
//	objects_test.go  random Services and slices
//	node_test.go     the daemon, its settings, diff, and what the kernel has
//	full_test.go     a Service with 65,536 endpoints
//	ipv6_test.go     IPv6 is switched off and on
//	clients_test.go  the clients of Services that nobody touches
package random
