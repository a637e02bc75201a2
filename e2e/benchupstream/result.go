package main

import "github.com/verdict-proxy/verdict/e2e/measure"

// result holds all figures of a run of the program.
type result struct {
	Machine measure.Machine `json:"machine"`
	Runs    []run           `json:"runs"`
	Seconds float64         `json:"seconds"`
}

// run holds the figures of one proxy at one size.
type run struct {
	Proxy    string `json:"proxy"`
	Services int    `json:"services"`

	FirstSync float64 `json:"first_sync_ms"` // the synchronization itself, from the proxy's log
	Start     float64 `json:"start_to_synced_ms"`
	SyncCPU   float64 `json:"cpu_until_synced_s"` // with children

	Resident     int64 `json:"resident"` // 3 s after the first synchronization
	Peak         int64 `json:"peak"`
	LargestChild int64 `json:"largest_child"`
	Kernel       int64 `json:"kernel_memory"`
	ruleCounts

	Change measure.Quantiles `json:"change"` // PUT sent to kernel done, each change alone
	Put    measure.Quantiles `json:"put"`    // the PUT alone

	Stream    measure.Quantiles `json:"stream"` // the same for each change of a stream
	StreamCPU float64           `json:"stream_cpu_percent"`
	BusyCPU   float64           `json:"busy_stream_cpu_percent"`
	BusyRate  float64           `json:"busy_stream_changes_per_second"`

	Paths measure.Comparison `json:"connections"`
}
