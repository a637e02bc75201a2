// Package runner runs scenarios. It builds a network with a proxy in it, writes objects where the proxy reads them, and
// makes the connections that scenarios ask for. Package scenario reads the scenarios.
//
//	bed.go           a test bed: a network, a source of objects and a proxy, for one address family
//	apiserver.go     objects in an API server
//	manifests.go     objects as files in a folder
//	proxy.go         Verdict or upstream's kube-proxy as a process
//	fence.go         waits until the proxy has followed all changes, without a fixed pause
//	run.go           runs a scenario: preparation, steps, cleanup
//	steps.go         the implementation of each type of step
//	change.go        steps that change objects, the proxy or the node
//	probe.go         probes, flows and loops
//	explain.go       "verdict explain" must say what probes expect
//	distribution.go  steps that count which endpoints answer
//	check.go         all other checks
//	direct.go        for tests in Go that take steps themselves
package runner
