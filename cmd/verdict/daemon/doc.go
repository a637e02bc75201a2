// Package daemon is "verdict run": it connects the parts of the proxy and runs them.
//
//	daemon.go         the parts, connected; settings that change while the daemon runs
//	kernel.go         the parts that talk to the kernel; UDP flows that an earlier process left; metrics that are read from the kernel; what others do to the tables
//	health.go         endpoints that do not serve, and what a restart finds of them
//	observers.go      what the loop reports, passed to health, metrics and Events
//	listeners.go      the HTTP listeners for health, metrics and the page of package ui
//	systemd.go        reports the state to systemd; the files are read again
//	passing.go        open connections, by where their endpoints are and who their clients are
//	drain.go          the daemon stops serving because somebody asks
//	conntrackfull.go  a table of connections that is full
package daemon
