// Package shortform is the short form of a balancer: one object LoadBalancer in place of a Service and its EndpointSlices,
// for machines without Kubernetes. It becomes the same values of package state, so nothing behind this package knows it.
//
//	types.go     the fields, their values and their meaning
//	values.go    types with a text of their own: addresses, ports, times
//	node.go      a document with the line of each field
//	decode.go    from a document to a LoadBalancer, strictly
//	validate.go  what is wrong between fields
//	objects.go   from a LoadBalancer to a Service and slices
//	schema.go    the JSON schema
package shortform
