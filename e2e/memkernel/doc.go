// Package memkernel has kernels in memory, for tests that need no packets. They are as strict as the real ones: they refuse what
// those refuse. Tests compare them with the real ones.
//
//	nftables.go   nf_tables: tables, chains, rules, sets and elements
//	flowtable.go  its flowtables
//	listing.go    both tables as text
//	waiting.go    what an engine has not sent yet
//	ipvs.go       IPVS, and routes that make addresses local
package memkernel
