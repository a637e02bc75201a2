// Command kubectl-verdict asks the daemons of a whole cluster. "kubectl verdict list" runs "verdict list" in the pod of each node,
// and says where the answers differ. kubectl finds the program by its name; it runs on Linux, macOS and Windows.
//
//	main.go     the commands, their flags and exit codes
//	nodes.go    which pods there are, and running a command in all of them
//	merge.go    what many nodes say, once
//	list.go     "list" and "top": rows of all nodes
//	diff.go     "diff": which node differs from what the API server has, and which endpoint does not answer whom
//	explain.go  "explain": the way from a pod to a Service, and to the endpoint's node
package main
