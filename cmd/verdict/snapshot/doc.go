// Package snapshot reads what this node serves, once, as values: frontends with their engine, endpoints, connections and
// flags from the kernel, and from the daemon which endpoints are not good. "verdict list", "get", "top", "explain" and
// "diff" and the page of the daemon read through it and print.
//
//	table.go        the values
//	query.go        which frontends are wanted, and what commands call them; names of Services for the shell
//	read.go         reads them: one by one if the daemon knows where they are, otherwise all
//	engines.go      a frontend, from the nft tables and from IPVS
//	connections.go  connections of the endpoints, from connection tracking
//	health.go       endpoints of which the daemon knows that they do not answer, fail their checks, or are backups
//	counts.go       counters of connections; loads of Services and of endpoints, from two readings
//
// The kernel alone suffices: the daemon may be down. The package changes nothing and prints nothing.
package snapshot
