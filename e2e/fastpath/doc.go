// Package fastpath tests the fast path (--fast-path=services) with packets, under an emulated kernel that has flowtables: which connections
// take it, what ends them, devices that come and go, changes by others.
package fastpath
