// Package random changes everything that may change, at random, and expects three things: after each change the kernel has
// what "verdict diff" wants; clients of Services that nobody touches notice nothing; and when the random Services are gone,
// no element of theirs is left.
//
// A test prints its seed. The same seed draws the same changes:
//
//	go test -tags e2e ./e2e/random -time=10m -seed=7
//
// Under a kernel with IPVS, and with a clock that jumps, nobody else uses the machine:
//
//	TAGS=e2e e2e/ipvskernel/test.sh ./e2e/random -- -test.run Changes -time=5m -clock -backend=hybrid
//
// It differs from e2e/chaos: objects come from manifests, the daemon restarts in an orderly way or by SIGKILL, and nothing
// fails on purpose. So each step can be checked.
//
//	driver_test.go   the loop
//	changes_test.go  what a step changes
//	objects_test.go  random Services and slices
//	node_test.go     the daemon, its settings, diff, and what the kernel has
//	full_test.go     a Service with 65,536 endpoints
//	clients_test.go  the clients of Services that nobody touches
package random
