// Package cluster reads what a Kubernetes API server has, and follows it.
//
// The files, in reading order:
//
//	client.go      access to the API server, and its addresses
//	kubernetes.go  lists and watches each resource until the process ends
//	resource.go    what is listed, how each object reaches the sink, and whether the first list has arrived
//	watches.go     when a watch is opened, and whether the server still has the same history
//	supervise.go   ends watches that hang
//	plausible.go   which lists are not used
//	outage.go      one log line for each loss of the API server
//
// # Memory
//
// An informer keeps a copy of every object. Even with a transform, that takes a few hundred bytes of empty API structs
// for each endpoint, and no code here would read the copy. So there is no informer: the reflector writes into a feed,
// which converts an object at once and drops it. What remains is the value of package state, which the sink and the
// store share, and a map entry for its name. The sink needs both to find objects that are missing from a new list, and
// to see what changed. A list that the server streams (WatchList, the default since client-go 0.35) is converted item
// by item as well. With a server that cannot stream, the decoded list stays in memory until the first garbage
// collection after the start. BenchmarkHeldMemory measures about 150 bytes for each endpoint, including Services and
// all maps: 68 MiB for 50,000 Services with ten endpoints each.
package cluster
