// Package lab builds what end-to-end tests run in: network namespaces that play a node, its pods, another node with
// pods, and clients outside; servers and clients that talk between them; an API server; and the proxy as a process.
//
//	namespace.go     network namespaces: calls and processes inside them
//	link.go          links, addresses, routes
//	world.go         who is where: the topology; addresses.go: every address has a name
//	server.go        pods answer with their name and the source they saw; sctp.go: SCTP by hand
//	ask.go           one connection and what became of it; flow.go: connections that stay open
//	conntrack.go     the node's table of flows
//	process.go       a process inside a namespace, its log, its end
//	controlplane.go  etcd and kube-apiserver; credentials.go: certificates, tokens, kubeconfig
//
// It knows nothing of Verdict, of scenarios, or of what a Service is.
package lab
