// Package nft turns service ports into elements of a small, fixed nftables program. It keeps the kernel's two tables,
// "ip verdict" and "ip6 verdict", equal to the service ports that it was given. README.md in this folder describes the
// program, how a packet goes through it, and the words that the code uses.
//
// The flow of a change:
//
//	Port values -> Engine.Set, Engine.Delete -> Transaction (prints itself in nft syntax)
//	            -> netlink batch -> applied | rejected | unknown
//
// The package does not know Kubernetes and starts no process. It never touches a table that is not its own.
//
// The files, in the order in which to read them:
//
//	engine.go   both tables as one unit, how it starts, what an earlier process served; guards for IPVS; the changes that the next Apply makes
//	apply.go    gives the changes to the kernel
//	fastpath.go the devices of the fast path
//	send.go     one transaction: batches, its three outcomes, which service port the kernel refused
//	repair.go   undoes commits of other processes, now and while no Verdict ran; the periodic check
//
// Below this package, in the folders of the same names:
//
//	table     one table in the kernel, compared with what it is to have
//	inspect   what commands and metrics read
//	contents  what the tables are to have for service ports
//	ledger    what is wanted and what the kernel has, by owner
//	kernel    nf_tables over netlink: batches, dumps, events
//	program   the chains and sets of the tables, as values
//	rule      rules, as text and as bytecode
//	nlmsg     the framing of netlink messages
package nft
