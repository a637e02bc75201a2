// Package demo is the sub-command "verdict demo": the real daemon balancing real connections, on one machine, for
// someone who has nothing but the binary.
//
//	command.go    the command, and what happens outside: sandbox.go starts this program again in namespaces of its own
//	stage.go      what happens inside: story.go tells it step by step
//	network.go    the node, pods and client (network namespaces, namespace.go) and the links between them
//	traffic.go    backends that answer with their name, clients that count the answers
//	manifests.go  the folder of manifests
//	proxy.go      "verdict run" on that folder, and its log
//	ruleset.go    the part of "verdict render" that is worth reading
//	spread.go     whether a spread is even; screen.go draws it
//
// Everything lives in one process, its child "verdict run" and a private mount of the folder for temporary files. That
// process is the first one of a process namespace: when it ends, in whatever way, the kernel ends the rest and removes
// the namespaces, their rules and the files with them. Nothing needs to be cleaned up by a program that may be killed.
//
// It is not a test: the end-to-end tests are. It proves one Service to a newcomer, and ends with a non-zero exit code
// when it cannot.
package demo
