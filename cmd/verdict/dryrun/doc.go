// Package dryrun runs passes of the loop over engines that write nothing. The commands "verdict render", "diff" and "validate" print
// what comes of that.
//
//	renderer.go  the loop, its engines, and where its objects come from
//	kernels.go   kernels that take everything from the engines and do nothing
//	print.go     the ruleset, the changes from one folder to the next, and what objects ask for and do not get
//	diff.go      what is pending: what a daemon that starts now would write
package dryrun
