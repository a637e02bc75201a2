// Package report has what the loop reports: to its observer (health, metrics, Events), and to the log.
//
//	report.go        the reports, and the Observer; trigger times of endpoint changes, and the healthCheckNodePort servers that are wanted
//	problems.go      what cannot be honored of which object; how many lines the log has about the objects of one namespace
//	passes.go        the log of passes: errors, and one line a second for passes that changed something; what others changed
//
// The package decides nothing and keeps no state but what it needs to report changes only.
package report
