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
// The files, in the order in which to read them. What callers use:
//
//	port.go         the values that callers give: Port, Frontend, Endpoint, Globals
//	family.go       IPv4 and IPv6
//	engine.go       both tables as one unit; the three outcomes of an Apply
//	memory.go       an engine over a kernel in memory, which prints the whole ruleset
//	list.go         both tables, read from the kernel
//
// The program, as text and as bytecode of the kernel:
//
//	program.go      what the rules depend on
//	sets.go         the maps and sets
//	chains.go       the chains and rules, and the chain of each class
//	sources.go      source ranges: their chains and elements
//	outlier.go      rules that notice endpoints that do not answer, and the reader of their sets
//	heldback.go     rules that hold back the refusals of dead endpoints
//	ipvs.go         rules for frontends that IPVS serves; guards of their addresses
//	loopback.go     the guard of 127.0.0.0/8, which has a table of its own too
//	record.go       a record for callers, in the comment of a table
//	field.go        what a rule looks at
//	statement.go    what a rule does
//	types.go        types of keys and data
//	class.go        classes: one chain for each way to draw a slot; class_name.go: the names of their chains
//
// From service ports to changes:
//
//	table.go        the mirror of one family's table, and the changes that a port needs
//	frontend.go     elements of frontends
//	limits.go       what a port gets when it meets a limit, and when it gets more again
//	pool.go         which endpoint is in which slot
//	hash.go         hash tables, which pools with the same endpoints share
//	maglev.go       which endpoint is in which slot of a hash table
//	ordinal.go      tokens of endpoints, for session affinity
//	globals.go      elements that belong to no service port
//	build.go        a table as a whole
//	element.go      one element; label.go: its comment
//	transaction.go  the changes to both tables
//
// To the kernel and back:
//
//	encode.go       a transaction as netlink messages; wire.go, udata.go: parts of messages
//	parts.go        large new tables, in several batches
//	conn.go         the netlink socket
//	read.go         reading from the kernel
//	changed.go      which service ports changed many elements
//	claim.go        one process for each network namespace
//	persist.go      trying again what the kernel failed to do
//	survey.go       which chains, rules and sets the kernel has; ruledigest.go: tells whether a rule is the wanted one
//	probe.go        what the kernel lacks of what the program needs
//	inherit.go      what an earlier process left in the kernel; image.go: the slots that it left; left.go: the same for reports
//	converge.go     from there to what the mirror has
//	mend.go         rules that changed while no Verdict ran
//	refused.go      which service port the kernel refused
//	stamp.go        which engine wrote a table last, and how often
//	owner.go        keeps other processes off the tables
//	watch.go        commits of other processes to our tables
//	repair.go       undoes them; owners.go: what the elements are to be that they touched
//	look.go         looks at everything in parts, when the kernel dropped events
//	sweep.go        finds what no message told of
//	lister.go       reads the elements for a listing
//	content.go      both tables, without the numbers that are local to a process
//	counters.go     frontends with their counters; one frontend, one pool
//	lookup.go       reads single elements
//	walk.go         a packet's way through the program, with look-ups in the kernel
//	trace.go        what the kernel says about the packets of one flow; trace_rules.go: what their rules do
//	others.go       chains of other tables that packets pass
//	pick.go         which endpoints a connection can get; jhash.go: the kernel's hash of an address
//	counts.go       how many elements and connections there are, for metrics
//	memory_kernel.go  the kernel in memory
//
// Package nlmsg in this folder has the framing of netlink messages.
package nft
