// Package state holds what the cluster wants, as plain values: Services, EndpointSlices, this node's Node object and
// the host's addresses. It remembers which Services changed since the last pass that reached the kernel.
//
//	types.go       the values
//	annotation.go  the annotations: keys, values, and what else the program and the documents say about them
//	problem.go     parts of objects that cannot be honored, and limits for their texts
//	store.go       the Store: sources write into it, the loop reads from it
//	backlog.go     its changes that the kernel does not have, their counts, and its locks
//	devices.go     the network devices of this host
//	health.go      what is known of the health of endpoints; active checks and their grammar
//	queue.go       Turns: in which order the loop takes what changed, and others what waits
//
// It knows neither Kubernetes types nor the kernel.
package state
