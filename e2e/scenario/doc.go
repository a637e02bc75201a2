// Package scenario reads end-to-end scenarios: text files that list objects, changes and checks, one step on each line.
//
//	parse.go        reads files: cuts them into scenarios and steps
//	tables.go       the tables of verbs in e2e/README.md, and of differences in e2e/UPSTREAM.md
//	scenario.go     a scenario, its steps, what other proxies do instead, and the list of all verbs
//	changes.go      verbs that change objects of the cluster
//	endpoints.go    the endpoints of a Service, and their slices
//	node.go         verbs that change the node and its proxy
//	connections.go  verbs that make connections
//	observe.go      verbs that look at the node, at an HTTP server, or at Events
//	object.go       objects in YAML, and the fields that scenarios may leave out
//	verb.go         what the language knows about a verb
//	arguments.go    reads the words of one step: targets, and what a probe expects
//
// The package only reads. Package runner takes the steps: it starts the proxy, writes objects and sends packets.
// e2e/README.md explains how to write a scenario and how to add a verb.
package scenario
