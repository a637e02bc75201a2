// Package fleet tests several balancers with the same addresses, behind a router with equal-cost routes. They share
// nothing. When one of them dies, its connections go on at the others (--fleet).
//
//	bed_test.go      a client, a router, three balancers with Verdict, and servers
//	load_test.go     connections that stay open, and new ones all the time
//	fleet_test.go    a balancer dies: its links, its process, all of it; also while endpoints change
//	mtu_test.go      downloads over a path with a small MTU
//	pair_test.go     two balancers whose addresses move from one to the other, by keepalived
//	sync_test.go     the same with the sync daemon of keepalived, under a kernel with IPVS
//	routing_test.go  BIRD and FRR with the example files of config/deploy/examples
//
// The routes change by hand, except with a routing daemon.
package fleet
