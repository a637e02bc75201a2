// Package chains owns the chains that service ports need beside the fixed ones.
//
// The files, in the order in which to read them:
//
//	chains.go  chains and numbers of classes, and chains of source ranges
//	rungs.go   the affinity timeouts that have a class
package chains
