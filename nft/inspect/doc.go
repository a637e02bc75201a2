// Package inspect reads the tables for commands and metrics. It does not matter which process wrote them, and whether that
// process still runs. Package inspect changes nothing, except for the table of a trace.
//
// The files, in the order in which to read them. Listings:
//
//	list.go         both tables: frontends with their pools; what an earlier process left in the kernel
//	lister.go       reads the elements for a listing
//	content.go      both tables, without the numbers that are local to a process
//
// One question about few elements:
//
//	tables.go       reads single elements
//	counters.go     frontends with their counters; one frontend, one pool; for metrics: the affinity map, and endpoints that the kernel noticed
//	walk.go         a packet's way through the program, with look-ups in the kernel
//	pick.go         which endpoints a connection can get; the kernel's hash of an address
//
// Packets and other tables:
//
//	trace.go        what the kernel says about the packets of one flow, and what their rules do
//	foreign.go      chains of other tables that packets pass
package inspect
