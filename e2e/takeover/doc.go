// Package takeover tests that Verdict takes a node over from upstream's kube-proxy and gives it back, while clients
// connect in a loop and connections are open.
//
//	takeover_test.go  the runs there and back
//	modes_test.go     the modes of kube-proxy; modes_ipvs_test.go: ipvs, under a kernel that has it (make e2e-ipvs)
//	edge_test.go      packets without a flow, and a node without a route to Services, with both proxies
//	packets_test.go   packets that no port takes, connections from before the last change, with both proxies
//	established_ipvs_test.go  instructions of a packet, under an emulated kernel
//	check_test.go     "verdict check" on a node with kube-proxy
//	bed_test.go       the network, the objects and the two proxies
//	plane_test.go     the API server; plane_ipvs_test.go: static answers that stand in for it
//	clients_test.go   loops of connections, and connections that stay open
package takeover
