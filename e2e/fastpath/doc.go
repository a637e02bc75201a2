// Package fastpath tests the fast path (--fast-path=services) with packets, under an emulated kernel that has flowtables.
//
//	fastpath_ipvs_test.go  which connections take it, ends, hairpin, MTU, devices that come and go, changes by others
//	ends_ipvs_test.go      flows that Verdict deletes end on it as well; the others stay on it
//	packets_ipvs_test.go   fragments, ICMP errors, half-open connections, time to live, routes that differ
//	devices_ipvs_test.go   VLAN, VXLAN, tunnels, bridges whose packets pass the rules
//	visible_ipvs_test.go   list, explain, top, metrics and the page
//	kernel_ipvs_test.go    kernels on which it stays off; cleanup; refusals
package fastpath
