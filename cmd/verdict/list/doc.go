// Package list is the command "verdict list": it reads back what the kernel serves and prints it as one table, in the shape
// of "ipvsadm -Ln", for both engines.
//
//	nft tables, IPVS, connection tracking -> frontends with their endpoints (collect.go, connections.go)
//	                                      -> text.go: the table, one line for each frontend, JSON
//
// It asks the kernel and nobody else: not the daemon, which may be down, and not the API server. It changes nothing.
package list
