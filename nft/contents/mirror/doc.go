// Package mirror is what both tables are to have: their elements, and the chains of their classes. It keeps a mirror of the
// kernel's tables in compact form, writes the changes that a service port needs, and can write everything again. It does no
// I/O, and does not know what becomes of a transaction.
//
// The files, in the order in which to read them:
//
//	contents.go   what a table is to have, and the changes that a port needs
//	portset.go    the service ports of a table, with their numbers
//	ports.go      the state of a service port, and its elements
//	frontend.go   elements of frontends and source ranges
//	limits.go     what a port gets when it meets a limit, and which ports wait for room
//	pool.go       which endpoint is in which slot
//	ordinal.go    tokens of endpoints, for session affinity
//	shared.go     sets of addresses that service ports share; elements that belong to no service port
//	answers.go    the frontends that endpoints answer for
//	earlier.go    numbers and slots of an earlier process
//	parts.go      the elements that the kernel is to have, as a whole and in parts
package mirror
