// Package endpointhealth finds out which endpoints serve, and writes it into the store. Package plan decides which endpoints
// of a pool get connections.
//
//	kernel: connections       package suspicion       failed ---+
//	without a reply       --------------------------------------+  ledger
//	                                                            +-----------> state.Store.SetHealth
//	Services that ask for     package checks                    |
//	active checks         -------------------------> failing ---+
//
// Packages suspicion and checks decide, and do nothing else. This package has what they need: it reads the kernel, asks by
// means of package prober, looks up Services and slices, and tells people. Questions have a cost, and the node and each
// namespace have a rate: what comes beyond it is late.
//
// The files:
//
//	monitor.go  the parts, how they work together, what the loop reports of plans, and which questions follow
//	ledger.go   what is known of each Service; when it is written into the store, and what outlives the process
//	permit.go   what a Monitor needs, what flags and annotations ask for, who may be asked, and what questions cost
//	kernel.go   what the kernel noticed, and how questions are asked
//	walk.go     what walks over all slices: the Services of an endpoint, other endpoints of its node, witnesses
//	report.go   log lines, metrics and Events, and the state for commands and the page
package endpointhealth
