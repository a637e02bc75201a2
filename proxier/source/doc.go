// Package source brings what the cluster and the host want into a state.Store, change by change: from a Kubernetes API
// server or a directory of manifests, and the host's addresses from the kernel. Besides cmd it is the only package that
// knows API types; what leaves it are values of package state.
//
//	API server -> reflector -> feed -.
//	                                 +-> converter -> sink -> state.Store
//	directory  -> documents/decode  -'
//	kernel     -> Addresses --------------------------------^
//
// The files, in the order in which a reader wants them:
//
//	convert.go, service.go, slice.go, node.go  API object -> domain value and Problems; pure
//	intern.go      strings that many objects share
//	sink.go        only differences reach the store
//	kubernetes.go, resource.go, feed.go, outage.go, client.go  the API server
//	manifests.go, follow.go, document.go, decode.go            the directory
//	addresses.go, primary.go                                   the host
//	synced.go      when the store may be used
//
// # What is malformed
//
// A part of an object that cannot be understood (an address, a port, a range, an annotation) is left out and reported as
// a state.Problem; the rest of the object stays in force. The package logs nothing about objects, that is for whoever
// shows the store's Problems. It logs what is wrong with manifest files and with access to the API server.
//
// # Memory
//
// An informer keeps a copy of every object, even with a transform a few hundred bytes of empty API structs per endpoint.
// Nothing here reads that copy, so there is none: the reflector writes into a feed, which converts an object at once and
// lets it go. What stays is the domain value, shared between the sink and the store, and one map entry for its name; the
// sink needs these to delete what a new list lacks and to tell what changed. A list that the server streams (WatchList,
// on by default since client-go 0.35) is converted item by item as well; a server that cannot stream costs the decoded
// list once, until the first garbage collection after the start. BenchmarkHeldMemory: about 150 bytes for each endpoint,
// Services and all maps included, 68 MiB for 50,000 Services with ten endpoints each.
//
// # Half-written manifests
//
// A file that does not parse, or is empty, leaves its previous content in force. One that breaks off where YAML may end
// cannot be told from one that is meant so; reading waits for a moment of quiet, but only writing under another name and
// renaming is safe.
//
// # What it is not
//
// It decides nothing: which Service wins an address, which endpoint serves, what a Node's absence means is for package
// plan. It never writes to the API server.
package source
