// Package source reads what the cluster and the host want, and writes it into a state.Store change by change. It reads
// Services, EndpointSlices, ServiceCIDRs and this node's Node object from a Kubernetes API server or from a directory
// of manifests. This package and cmd are the only ones that know API types. Everything that leaves this package is a value
// of package state. Package host reads the addresses of the host, and package directory follows directories.
//
//	API server -> reflector -> feed -.
//	                                 +-> converter -> sink -> state.Store
//	directory  -> documents/decode  -'
//	kernel     -> host.Addresses ---------------------------^
//
// The files, in reading order:
//
//	convert.go     from API objects to values of package state: addresses, ports, names, annotations, shared strings, Problems
//	service.go     the same for Services
//	slice.go       the same for EndpointSlices
//	node.go        the same for Nodes and ServiceCIDRs
//	sink.go        writes into the store only what differs; MarkSynced
//	kubernetes.go  the API server: lists and watches; resource.go: what is listed, and the feed that it goes to
//	watches.go     when a watch is opened, and whether the server still has the same history
//	supervise.go   ends watches that hang
//	plausible.go   which lists are not used
//	outage.go      one log line for each loss of the API server
//	client.go      access to the API server, and its addresses
//	kept.go        what the kernel has stays in force for manifests that cannot be read at the start
//	manifests.go   the directory of manifests; document.go, decode.go: the content of files
//
// # Malformed objects
//
// The converter leaves out a part of an object that it cannot parse (an address, a port, a range, an annotation) and
// reports it as a state.Problem. The rest of the object stays in force. This package does not log problems of objects,
// because the readers of the store report them. It does log faults of manifest files and failures to reach the API
// server.
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
//
// # Half-written manifests
//
// If a file does not parse, or is empty, its previous content stays in force. If a file ends at a place where YAML may
// end, the source cannot know that the program has not finished writing. It waits for a moment of quiet before it
// reads, but only a program that writes another file and renames it is safe.
//
// # Limits of this package
//
// This package decides nothing: package claims decides which Service gets an address, and package plan decides which
// endpoint serves. This package never writes to the API server.
package source
