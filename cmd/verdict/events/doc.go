// Package events raises Kubernetes Events about Services and about the Node.
//
//	events.go  Events about problems of Services, endpoints that begin to fail, and changes of the tables by others
//	queue.go   Events that wait for the API server, with turns for namespaces
package events
