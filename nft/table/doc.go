// Package table is one family's table in the kernel, compared with what it is to have. It reads the kernel, and writes what
// differs to a transaction. It sends nothing: that is up to the engine, the package above.
//
// The files, in the order in which to read them:
//
//	table.go    a table, as the engine knows it, and how many elements it has; those of both families
//	form.go     its chains, rules and sets, compared with those in the kernel
//	load.go     finds out which elements the kernel has, and enters them into the ledger
//	stamp.go    which engine wrote a table last, and how often, and who may write it
//	image.go    reads what an earlier process left in the kernel
//	write.go    writes a table as a whole, or what differs from what is there
//	recheck.go  undoes commits of others, finds what no event reported, and compares everything in parts when the kernel dropped events
package table
