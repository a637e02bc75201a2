// Package rollout says what happened to connections during rolling updates of their servers.
//
//	run.go       the connections under a proxy, kept in a file
//	report.go    lists those that were late or failed, and counts all
package rollout
