// Package flows has stale flows removed beside the loop. Package conntrack decides which flows are stale, and removes them.
//
//	flows.go  when a cleaning starts, ends and is tried again
//	share.go  how much time cleanings may take
//	tally.go  sums of deleted connections for the log
package flows
