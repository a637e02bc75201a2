// Package elements turns service ports into elements and enters these into the ledger of a table. It owns what elements are made of:
// numbers, classes, slots, ordinals. It does no I/O, and does not know what becomes of a transaction.
//
// The files, in the order in which to read them:
//
//	contents.go   what a table is to have, and the changes that a port needs
//	later.go      service ports whose changes wait for a later transaction
//	port.go       the service ports of a table, with their numbers
//	frontend.go   elements of frontends and source ranges, and comments
//	limits.go     what a port gets when it meets a limit, and which ports wait for room
//	slots.go      which endpoint is in which slot
//	ordinal.go    tokens of endpoints, for session affinity
//	globals.go    elements that belong to no service port
//	answers.go    the frontends that endpoints answer for
//	earlier.go    numbers and slots of an earlier process
package elements
