// Package demo is the sub-command "verdict demo". It runs the real daemon, balances real connections on one machine,
// and needs nothing but the binary.
//
//	command.go  the command and its scenes
//	sandbox.go  starts this program again in namespaces of its own, and makes its private folder
//	network.go  the node, the pods and the client: network namespaces with links between them
//	traffic.go  backends that answer with their name, and clients that count the answers
//	proxy.go    the manifest, "verdict run" that reads it, and its log
//	story.go    what the demo shows, step by step; steady.go: pods go away while clients connect all the time
//	spread.go   draws how connections are spread, and checks that the spread is even
//
// Everything lives in one process, its child "verdict run", and a private mount over the folder for temporary files.
// The process is the first one of a process namespace. When it ends for any reason, the kernel ends the other processes
// and removes the namespaces, their rules and the files. So a demo that is killed leaves nothing behind, and killing it
// is how it is interrupted.
//
// The demo shows a new user that one Service works, and exits with an error if it does not. The end-to-end tests cover
// the rest.
package demo
