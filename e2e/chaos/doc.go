// Command chaos tests that Verdict keeps its promises while everything around it fails. "make chaos" runs it, and
// README.md in this folder describes it.
//
// The real daemon follows a real API server, in the network of package lab. Clients connect all the time to Services
// that nobody touches, while other Services change, and faults are drawn at random. After each round the kernel must
// hold what a fresh plan says, element for element. A seed repeats the faults and the objects, though not their timing.
//
//	main.go      flags, rounds, exit code
//	bed.go       the network, the API server, the daemon and everything that runs beside them
//	daemon.go    the daemon as a process: kill, stop, start with other flags
//	stable.go    the Services that nobody touches, and who may answer for them
//	traffic.go   clients of these Services
//	ledger.go    what clients saw, and the windows in which foreign edits excuse them
//	churn.go     Services that come, change and go; hostile.go: objects that want to do harm
//	faults.go    the faults and how they are drawn
//	outages.go   faults of the daemon, the API server and the network
//	objects.go   classes, addresses and files that change under the clients of untouched Services
//	edits.go     faults in the ruleset, made by the real nft
//	inject.go    system calls of the daemon that fail; shortread.go: datagrams of which it reads a part
//	monitor.go   who commits to nf_tables, and when
//	compare.go   the kernel against a fresh plan
//	canonical.go the text of a ruleset without the numbers that differ between processes
//	report.go    the table at the end
//	soak.go      instead of rounds: one long run in which the daemon must not grow
package main
