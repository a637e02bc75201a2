// Package scenario reads end-to-end scenarios: text files that list objects, changes and checks, one step on each line.
//
//	scenario.go     a scenario and the files that hold scenarios
//	step.go         one step of a scenario, and what other proxies do instead
//	parse.go        cuts a file into scenarios and steps
//	arguments.go    reads the words of one step
//	expect.go       what a probe expects
//	verb.go         the list of all verbs, and its table in e2e/README.md
//	changes.go      verbs that change objects of the cluster
//	node.go         verbs that change the node and its proxy
//	connections.go  verbs that make connections
//	observe.go      verbs that look at the node, at an HTTP server, or at Events
//	object.go       objects in YAML, and the fields that scenarios may leave out
//	difference.go   the tables of differences in e2e/UPSTREAM.md
//
// The package only reads. Package runner takes the steps: it starts the proxy, writes objects and sends packets.
// e2e/README.md explains how to write a scenario and how to add a verb.
package scenario
