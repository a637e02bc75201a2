// Package runner runs scenarios: it keeps a world with a proxy in it, writes objects where the proxy reads them, and makes
// the connections that scenarios ask for.
//
//	bed.go        a world, a source of objects and a proxy, for one family
//	apiserver.go  objects in an API server; manifests.go: objects as files
//	proxy.go      Verdict or upstream's kube-proxy as a process
//	fence.go      knowing that the proxy has seen a change, without waiting blindly
//	run.go        the steps of a scenario
//	change.go     steps that change objects and the node
//	probe.go      connections and what is expected of them; check.go: everything else that is looked at
//
// What scenarios are and how they are read is the matter of package scenario.
package runner
