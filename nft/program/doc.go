// Package program is the fixed nftables program of Verdict: the chains and sets that both tables consist of, as values that
// package rule turns into text and bytecode, and the changes to them. It talks to no kernel, and knows no service ports.
// README.md in the folder above describes what the program does with a packet.
//
// The files, in the order in which to read them. What everything else uses:
//
//	program.go      families, what the rules depend on, groups of source ranges; a name by which another process knows the program
//	class.go        classes: one chain for each way to draw a slot; which pool serves a frontend, and refusals
//
// The sets and their elements:
//
//	set.go          a set or map: types of its keys and data, how nft declares it, and what cannot be changed about it
//	sets.go         the maps and sets of the program
//	element.go      one element, and its comment
//
// The chains:
//
//	chain.go        a chain, and the hooks of base chains
//	chains.go       the fixed chains, and the guard of 127.0.0.0/8, which has a table of its own too; rules for frontends that IPVS serves
//	pick.go         the chain of each class, and of hash tables
//	sources.go      chains of source ranges
//	outlier.go      rules that notice endpoints that do not answer, and hold back refusals of dead ones
//	fastpath.go     the flowtable, and the rules that lead there
//	features.go     what of nf_tables the rules need
//	trace_chains.go  chains that trace the packets of a flow
//
// How parts are compared, and how they change:
//
//	transaction.go  the changes to both tables, or to one
//	listing.go      prints a transaction that makes tables as nft lists them
package program
