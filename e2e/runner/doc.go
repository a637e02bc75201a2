// Package runner runs scenarios. It builds a network with a proxy in it, writes objects where the proxy reads them, and
// makes the connections that scenarios ask for. Package scenario reads the scenarios.
//
//	run.go           runs a scenario: preparation, steps, cleanup; for tests in Go that take steps themselves, too
//	steps.go         the implementation of each type of step
//	bed.go           a test bed: a network, a source of objects and a proxy, for one family; steps that change the node
//	change.go        steps that change objects
//	apiserver.go     objects in an API server, and its Events
//	manifests.go     what a source of objects is; objects as files in a folder
//	proxy.go         Verdict or upstream's kube-proxy as a process
//	fence.go         waits until the proxy has followed all changes, without a fixed pause
//	clients.go       what clients remember, and what they check of each answer
//	probe.go         probes, flows and loops
//	explain.go       "verdict explain" must say what probes expect
//	distribution.go  steps that count which endpoints answer
//	check.go         all other checks
package runner
