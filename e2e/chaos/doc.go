// Command chaos tests that Verdict keeps its promises while everything around it fails. "make chaos" runs it, and
// README.md in this folder describes it.
//
// The real daemon follows a real API server, or a folder, in the network of package lab. Clients connect all the time to Services
// that nobody touches, while other Services change, and faults are drawn at random. After each round the kernel must
// hold what a fresh plan says, element for element. A seed repeats the faults and the objects, though not their timing.
//
//	main.go     flags, exit code
//	bed.go      the network, the API server, the daemon and everything that runs beside them
//	daemon.go   the daemon as a process: kill, stop, start with other flags
//	stable.go   the Services that nobody touches, and who may answer for them
//	traffic.go  clients of these Services
//	ledger.go   what clients saw, and the windows in which foreign edits excuse them
//	writer.go   objects in the API server, or in a folder of manifests
//	churn.go    Services that are created, changed and deleted, and objects that want to do harm
//	rounds.go   the rounds; soak.go: instead of them, one long run in which the daemon must not grow
//	faults.go   the faults and how they are drawn
//	outages.go  faults of the daemon, the API server, the network, and of objects under the clients
//	health.go   endpoints that vanish, refuse, flap, leave, and fail their checks
//	edits.go    faults in the ruleset, made by the real nft; monitor.go: who commits to nf_tables, and when
//	oracle.go   the kernel against a fresh plan, with package ruleset
//	report.go   the table at the end
//
// Package inject makes system calls of the daemon fail.
package main
