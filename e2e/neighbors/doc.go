// Package neighbors tests Verdict on a node that it shares with other software: firewalls that reload, network plugins
// that masquerade, container engines with chains of their own. Each neighbor is the real program.
//
//	bed_test.go        the node, the daemon, and the Service that all scenarios use
//	scenarios_test.go  the scenarios that each neighbor must leave alone
//	neighbor_test.go   what a neighbor is, and the order of the tests
//	system_test.go     programs that expect folders and a message bus of their own
//	build_test.go      programs from Go modules, which build.sh builds
//	NAME_test.go       one neighbor each: how it starts and reloads, and what is special to it
//	documented_test.go the table of neighbors for users, in config/deploy/README.md, names each test
package neighbors
