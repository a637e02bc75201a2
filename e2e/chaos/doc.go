// Package chaos tests that Verdict keeps its promises while everything around it fails. "make chaos" runs it, and
// README.md in this folder describes it.
//
// The real daemon follows a real API server, or a folder, in the network of package lab. Clients connect all the time to Services
// that nobody touches, while other Services change, and faults are drawn at random. After each round the kernel must
// hold what a fresh plan says, element for element. A seed repeats the faults and the objects, though not their timing.
//
//	chaos_test.go    the test; flags_test.go: its flags
//	rounds_test.go   the rounds, and how faults are drawn
//	soak_test.go     instead of rounds, one long run in which the daemon must not grow
//	report_test.go   the table at the end
//	outages_test.go  faults of the daemon, the API server, the network, and of objects under the clients
//	health_test.go   endpoints that vanish, refuse, flap, leave, and fail their checks
//	fastpath_test.go the fast path in a third of the rounds
//	edits_test.go    faults in the ruleset, made by the real nft
//	bed_test.go      the network, the API server, the daemon and everything that runs beside them; what a fault of these is
//	repair_test.go   how long a repair takes: who commits to nf_tables, and when
//	oracle_test.go   the kernel against a fresh plan, with package ruleset
//	daemon_test.go   the daemon as a process: kill, stop, start with other flags
//	churn_test.go    Services that are created, changed and deleted, and objects that want to do harm
//	traffic_test.go  clients of the Services that nobody touches; stable_test.go: these, and who may answer for them
//	ledger_test.go   what clients saw, and the windows in which foreign edits excuse them
//	writer_test.go   objects in the API server, or in a folder of manifests
//
// Package inject makes system calls of the daemon fail.
package chaos
