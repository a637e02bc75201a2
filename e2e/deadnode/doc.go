// Package deadnode tests what becomes of connections when endpoints die without a word, with the real daemon and real
// packets.
//
//	bed_test.go           the world, the daemon, and a load of connections
//	stalls_test.go        when the machine stands still, so that nothing is proved
//	engines_test.go       what serves the Service; engines_ipvs_test.go: under a kernel with IPVS (make e2e-ipvs)
//	dead_test.go          endpoints that die
//	affinity_test.go      a client that belongs to an endpoint that dies
//	check_test.go         active checks and backup endpoints
//	return_test.go        endpoints that return
//	replaced_test.go      an endpoint that is replaced while a client waits for its answer
//	falsealarm_test.go    endpoints that only look dead
//	bench_test.go         what the rules cost connections and packets
//	vanish_bench_test.go  a node that vanishes, under Verdict and under kube-proxy
//	idle_bench_test.go    what a daemon costs while nothing is wrong
//
// "go test -tags e2e ./e2e/deadnode -run FalseAlarms -false-alarm-time=5m" has each false alarm go on for five minutes instead of
// some seconds.
package deadnode
