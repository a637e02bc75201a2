// Package preflight finds out whether Verdict can serve a node, before it does: the kernel, other proxies, sysctls and
// the access to the API server. It changes nothing, except for trials that it undoes at once.
//
//	finding.go  one row of the result, and how the result is printed
//	kernel.go   what the kernel has, and what nf_tables lacks, also for the daemon
//	neighbors.go other software of the node, known by its traces; what kube-proxy has left or serves, and who has the ports
//	fastpath.go the fast path, and whose rules its packets skip
//	sysctls.go  sysctls that are in the way, routes that are missing, and the table of connections
//	cluster.go  the access to the API server
//	realserver.go  another question: can this machine be an endpoint that gets packets as they are?
package preflight
