// Package inject makes system calls of a process fail. A seccomp filter with a listener has the kernel ask this package
// about each sendto and recvfrom of the process; Verdict uses both for netlink only. The process knows nothing of it.
//
//	inject.go     the filter, its listener, and which calls fail
//	shortread.go  datagrams of which the process reads a part
package inject
