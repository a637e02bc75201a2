// Package nft turns service ports into elements of a small, fixed nftables program and keeps the kernel's two tables,
// "ip verdict" and "ip6 verdict", equal to them.
//
// The flow:
//
//	Port values -> Engine.Set/Delete -> Transaction (a value that prints itself in nft syntax)
//	            -> netlink batch -> applied | rejected | unknown
//
// The files, in the order in which a reader wants them:
//
//	port.go        the values that callers hand in: Port, Frontend, Endpoint, Globals
//	sets.go        the maps and sets of the program
//	chains.go      the chains and rules of the program, and the chain of each class
//	field.go       what a rule looks at, as text and as expressions
//	statement.go   what a rule does, as text and as expressions
//	class.go       classes: one chain for each way of picking a slot
//	pool.go        which endpoint sits in which slot
//	ipvs.go        what the program does for frontends that IPVS serves; guards of their addresses
//	table.go       applied state of one family and its difference to what is wanted
//	transaction.go what is to change, printable
//	encode.go      a transaction as netlink messages
//	conn.go        the netlink socket
//	engine.go      both tables as one unit; the three outcomes of an apply
//	survey.go      what there is in the kernel before a table is written as a whole
//	adopt.go       taking over what an earlier process left in the kernel
//	list.go        both tables read back for people; lister.go: how; class_name.go: what chains are called
//	memory.go      an engine over a kernel in memory, which prints the whole ruleset; memory_kernel.go: that kernel
//
// It knows nothing of Kubernetes and starts no process. It never touches a table that is not its own.
package nft
