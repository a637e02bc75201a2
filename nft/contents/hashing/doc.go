// Package hashing owns the hash tables of one family's table. Pools with the same endpoints share one.
//
// The files, in the order in which to read them:
//
//	maglev.go       which endpoint is in which slot
//	hash.go         the tables, and which pool has which
//	ahead.go        tables that are written before a pool has them
//	queue.go        the order in which they get their slots
//	leaving.go      tables without pools, whose slots go in pieces
//	targetports.go  the map of target ports
package hashing
