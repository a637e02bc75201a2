// Package events raises Kubernetes Events about Services and about the Node.
//
//	events.go  Events about problems of Services and about endpoints that begin to fail; their names and texts
//	node.go    Events about the Node: another process changed the tables
//	queue.go   Events that wait for the API server, with turns for namespaces
package events
