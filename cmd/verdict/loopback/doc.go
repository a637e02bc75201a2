// Package loopback has the sysctl that node ports on 127.0.0.1 need, and its guard: a table that drops packets for
// 127.0.0.0/8 from other hosts.
//
//	sysctl.go  the sysctl and the guard, in the order that leaves no gap
//	keeper.go  both stay while the daemon runs
package loopback
