// Package inspect reads the tables for commands and metrics. It does not matter which process wrote them, and whether that
// process still runs. Package inspect changes nothing, except for the table of a trace.
//
// The files, in the order in which to read them. One table:
//
//	tables.go       reads elements: all of a set, or those with given keys
//	decode.go       what elements say: frontends, pools, slots
//
// Listings:
//
//	list.go         both tables: frontends with their pools or only with their counters; what an earlier process left in the kernel
//	metrics.go      for metrics: the affinity map, and endpoints that the kernel noticed
//
// One question about few elements:
//
//	lookup.go       one frontend, one pool; what there is about a destination
//	walk.go         a packet's way through the program, with look-ups in the kernel
//	pick.go         which endpoints a connection can get; the kernel's hash of an address
//
// Packets and other tables:
//
//	trace.go        what the kernel says about the packets of one flow, and what their rules do
//	foreign.go      chains of other tables that packets pass
package inspect
