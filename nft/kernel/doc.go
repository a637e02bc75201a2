// Package kernel talks to nf_tables over netlink: it sends transactions in batches, reads what the kernel has, and is notified of
// commits by other processes. It knows the program (package program), and no service ports.
//
// The files, in the order in which to read them:
//
//	interface.go    what the engine and readers need of nf_tables
//	link.go         a connection, and trying again what the kernel failed to do
//
// Transactions:
//
//	encode.go       a transaction as netlink messages
//	log.go          what each message is about, and what became of it
//	cleanup.go      transactions that no engine keeps track of
//
// What the kernel has:
//
//	read.go         dumps and look-ups of elements
//	survey.go       which chains, rules and sets there are
//	rule.go         what a rule of any program does, and its digest
//	watch.go        commits of other processes to our tables
//	flowtable.go    the flowtables of our tables, and kernels in which the fast path stays off
//	probe.go        what the kernel lacks of what the program needs
//
// Other tables and locks:
//
//	record.go       a record for callers, in the comment of a table; the table that guards 127.0.0.0/8
//	claim.go        one process for each network namespace
package kernel
