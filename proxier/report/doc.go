// Package report has what the loop reports: to its observer (health, metrics, Events), and to the log.
//
//	report.go        the reports, and the Observer
//	healthchecks.go  the healthCheckNodePort servers that are wanted
//	triggers.go      trigger times of endpoint changes, for the latency metric
//	problems.go      what cannot be honored of which object, by object and by field
//	passes.go        the log of passes: errors, and one line a second for passes that changed something
//	interference.go  at most one line a minute for what other processes changed
//	lines.go         how many lines the log has about the objects of one namespace
//
// The package decides nothing and keeps no state but what it needs to report changes only.
package report
