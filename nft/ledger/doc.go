// Package ledger keeps, for one table and by owner, which elements are wanted and which ones the kernel has. What differs is
// pending: a transaction is what is pending, and after it pending becomes applied. README.md has the picture. The package
// does no I/O, and does not know what the elements mean.
//
// The files, in the order in which to read them:
//
//	record.go   elements of an owner in compact form, and how two lists of them differ
//	ledger.go   accounts, what is pending, and what becomes of it
//	write.go    writes what is pending to a transaction
//	shared.go   elements that several owners share, in accounts of their own
//	load.go     what the kernel was found to have
package ledger
