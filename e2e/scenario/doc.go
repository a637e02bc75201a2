// Package scenario reads end-to-end scenarios: text files with objects, changes and probes, one line each.
//
//	scenario.go  scenarios and their files
//	step.go      what a step can be
//	parse.go     lines into steps; arguments.go: the parts of a line
//	expect.go    what probes expect
//	object.go    objects as they are written in YAML, with what may be left out
//	difference.go where upstream's kube-proxy is expected to differ, as a table
//
// It only reads: it starts nothing and sends nothing. How to write scenarios is explained in e2e/README.md.
package scenario
