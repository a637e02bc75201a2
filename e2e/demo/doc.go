// Program demo creates a node and pods, each in a network namespace. It runs the real proxy on a folder of manifests, sends
// connections to a cluster IP, and draws how they are spread. It removes an endpoint while connections continue, and shows
// that the traffic moves. Then it prints what "verdict list" and "verdict explain" say. "make demo" runs it with
// bin/verdict, as root, or without root where unprivileged user namespaces are allowed.
//
//	main.go     the command
//	sandbox.go  starts this program again in namespaces of its own, and makes its private folder
//	story.go    what the demo shows, step by step
//	proxy.go    the manifests, "verdict run" that reads them, and its log
//	network.go  the node and the pods: network namespaces with links between them
//	traffic.go  pods that answer with their name, one that counts the answers, and the check that they are spread evenly
//
// Everything lives in one process, its child "verdict run", and a private mount over the folder for temporary files.
// The process is the first one of a process namespace. When it ends for any reason, the kernel ends the other processes
// and removes the namespaces, their rules and the files. So a demo that is killed leaves nothing behind, and killing it
// is how it is interrupted.
package main
