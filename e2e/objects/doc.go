// Package objects makes Kubernetes objects for tests in the network of package lab.
//
//	objects.go  Services, EndpointSlices and Nodes with given properties
//	random.go   random Services and EndpointSlices
package objects
