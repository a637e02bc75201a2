// Package source has no code of its own. The packages below it read what the cluster and the host want, and write it into a
// state.Store change by change:
//
//	host       the addresses of the host
//	cluster    Services, EndpointSlices, ServiceCIDRs and this node's Node object from a Kubernetes API server
//	manifests  the same from the files of a folder
//	shortform  the short form of a balancer in such files
//	directory  what changes in a folder
//	sink       writes only what differs into the store
//	convert    turns API objects into values of package state
//
// These packages and cmd are the only ones that know API types. Everything that leaves them is a value of package state.
//
//	API server -> cluster: reflector -> feed ---.
//	                                            +-> convert -> sink -> state.Store
//	folder -> manifests: documents -> decoder --'                          ^
//	kernel -> host.Addresses ----------------------------------------------'
//
// They decide nothing: package claims decides which Service gets an address, and package plan decides which endpoint
// serves. They never write to the API server.
package source
