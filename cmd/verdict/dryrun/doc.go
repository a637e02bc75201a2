// Package dryrun runs passes of the loop over engines in memory. The commands "verdict render", "diff" and "validate" print what
// comes of that. The package changes nothing in the kernel.
//
//	renderer.go  the loop over engines in memory, and where its objects come from
//	print.go     the ruleset, the changes from one folder to the next, and what objects ask for and do not get
//	diff.go      what the kernel has and should not have, and what it lacks
package dryrun
