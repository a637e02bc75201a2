// Package outage tests what becomes of the rules of a node when its API server is lost: killed, suspended, restored to an
// older state, emptied, or hidden behind a proxy that breaks its answers. Rules stay in force, and follow again later.
//
//	outage_test.go  faults of the real API server and of its etcd
//	answers_test.go answers that a proxy breaks
//	breaker_test.go that proxy
//	bed_test.go     the network, the API server and the daemon
package outage
