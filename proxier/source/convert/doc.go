// Package convert turns API objects into values of package state. It does no I/O.
//
// The files, in reading order:
//
//	convert.go  addresses, ports, names, annotations, shared strings, Problems
//	service.go  Services
//	slice.go    EndpointSlices
//	node.go     Nodes and ServiceCIDRs
//
// # Malformed objects
//
// The converter leaves out a part of an object that it cannot parse (an address, a port, a range, an annotation) and
// reports it as a state.Problem. The rest of the object stays in force. It logs nothing, because the readers of the store
// report Problems.
package convert
