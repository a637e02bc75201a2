// Package clients are clients of a Service that tests keep busy while something else happens on the node.
//
//	loops.go  clients that connect again and again, and the failures they saw
//	held.go   connections that stay open and are used all the time
//
// Tests of take-overs and of neighbors use it.
package clients
