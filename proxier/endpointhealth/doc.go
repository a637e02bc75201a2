// Package endpointhealth finds out which endpoints serve, and writes it into the store. Package plan decides which endpoints
// of a pool get connections.
//
//	kernel: connections     checks.Detector
//	without a reply       ------------------+
//	                                        |  checks.Checker      checks.Pool          ledger
//	Services that ask for                   +----------------> failed, failing, held -----------> state.Store.SetHealth
//	active checks, or that  ----------------+
//	eject (first looks)
//
// There is one machine, checks.Checker: a suspicion is a check that begins with an event. Checks wait in one line, count answers in one
// kind of record, outlive the process in one file, and mean the same for a pool (checks/pool.go). What differs:
//
//	               a check                              a suspicion
//	begins, ends   with the wish of a Service           with what the kernel noticed; with good answers
//	has its own    namespace: its Services share it     Service: its slices and its other endpoints matter
//	fall, rise     as the Service asks                  2, 2
//	is asked       once in the interval                 at once until it has failed, then after 1 to 30 s
//	does not       while it and all others elsewhere    while it never answered, unless it refuses clients as well and others
//	count          never answered                       answered; its silence while witnesses are silent, or many nodes' fall
//
// Package checks decides, and does nothing else. This package has what they need: it reads the kernel, asks by
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
