// Package memory is nf_tables in memory: it applies the transactions of an engine to both tables, refuses what the kernel
// refuses, and prints the tables in a form that "nft -f" reads. It has no packets.
//
//	kernel.go       tables, chains, rules, sets and elements
//	render.go       both tables as text
package memory
