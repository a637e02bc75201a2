// Package endpointhealth finds out which endpoints serve, and writes it into the store. Package plan decides which endpoints
// of a pool get connections.
//
//	kernel: connections       package suspicion       failed ---+
//	without a reply       --------------------------------------+  package ledger
//	                                                            +-----------> state.Store.SetHealth
//	Services that ask for     package checks                    |
//	active checks         -------------------------> failing ---+
//
// Packages suspicion and checks decide, and do nothing else. Package ledger has what is known of each Service. This package
// has what they need: it reads the kernel, asks by means of package prober, looks up Services and slices, and tells people.
// Questions have a cost, and the node and each namespace have a rate: what comes beyond it is late.
//
// The files:
//
//	monitor.go   the parts, and how they work together
//	services.go  what the loop reports of plans
//	policy.go    what flags and annotations ask for
//	permit.go    who may be asked
//	embedded.go  which addresses of IPv4 are behind those of IPv6
//	kernel.go    what the kernel noticed
//	walk.go      what walks over all slices: the Services of an endpoint, other endpoints of its node, witnesses
//	looks.go     first looks at endpoints
//	ask.go       how questions are asked
//	price.go     what questions cost
//	status.go    the state for commands and the page
//	report.go    log lines, metrics and Events
package endpointhealth
