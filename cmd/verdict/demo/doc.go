// Package demo is the sub-command "verdict demo". It runs the real daemon, balances real connections on one machine,
// and needs nothing but the binary.
//
//	command.go    the command
//	sandbox.go    the process outside: it starts this program again in namespaces of its own
//	stage.go      the process inside; story.go: what it does, step by step
//	deadnode.go   the scene in which a pod vanishes; rollout.go: a rolling update
//	network.go    the node, the pods and the client, with the links between them; namespace.go: network namespaces
//	traffic.go    backends that answer with their name, and clients that count the answers
//	manifests.go  the folder of manifests
//	proxy.go      "verdict run" on that folder, and its log
//	ruleset.go    the part of "verdict render" that the demo shows
//	spread.go     how even a spread is; screen.go draws it
//
// Everything lives in one process, its child "verdict run", and a private mount over the folder for temporary files.
// The process is the first one of a process namespace. When it ends for any reason, the kernel ends the other processes
// and removes the namespaces, their rules and the files. So a demo that is killed leaves nothing behind.
//
// The demo shows a new user that one Service works, and exits with an error if it does not. The end-to-end tests cover
// the rest.
package demo
