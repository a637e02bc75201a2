// Package list is the command "verdict list". It reads from the kernel what both engines serve, and prints it as one
// table that looks like the output of "ipvsadm -Ln".
//
//	command.go      the command, its help text and its filters
//	collect.go      frontends and endpoints, from the nft tables and from IPVS
//	connections.go  connections of the endpoints, from connection tracking
//	outliers.go     endpoints of which the daemon knows that they do not answer, fail their checks, or are backups
//	select.go       filters by address, endpoint, engine and problem; rate.go: connections per second
//	named.go        Services whose frontends the daemon knows, read one by one; meter.go: loads, measured for the page
//	top.go          the command "top": connections per second, again and again
//	topview.go      its live view; topends.go: rates of endpoints
//	complete.go     names for the shell
//	get.go          the command "get": one thing by its key; answer.go: its output
//	text.go         the output: the full table, one line for each frontend, or JSON
//
// The command asks only the kernel. It needs neither the daemon, which may be down, nor the API server. It changes
// nothing.
package list
