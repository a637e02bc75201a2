// Package lab is the network of tests: network namespaces that play a node, its pods, another node with pods, and
// clients outside; servers and clients that talk between them; and processes.
//
//	world.go      the topology; build.go: makes it, and starts its servers
//	places.go     the names of places, pods and links; addresses.go: every address has a name
//	namespace.go  a place: a namespace of package netns in which clients ask, also over HTTP
//	server.go     pods answer with their name and with the source that they saw
//	question.go   what a client asks, and how it ends; answer.go: what a server answers
//	ask.go        one connection; flow.go: connections that stay open, and packets that got lost
//	segment.go    a TCP segment outside of the window
//	sctp.go       SCTP by hand, and with the kernel's implementation
//	conntrack.go  the node's table of flows
//	process.go    a process inside a namespace, its log, its end
//	moment.go     what a failed test leaves: rules, flows, logs
//	file.go       a file that appears in one step
//	testing.go    worlds and connections that end with a test
//
// It knows nothing of Verdict, of scenarios, or of Services, and it imports no Kubernetes code: the tests of nft and
// ipvsctl use it, too.
package lab
