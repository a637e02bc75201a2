package main

import "github.com/verdict-proxy/verdict/e2e/measure"

// result is everything that a run measures.
type result struct {
	Machine measure.Machine `json:"machine"`
	Sizes   []sizeResult    `json:"sizes"`
	Large   *largeResult    `json:"large,omitempty"`
	Seconds float64         `json:"seconds"`
}

// sizeResult is what is measured at one size.
type sizeResult struct {
	Services  int `json:"services"`
	Endpoints int `json:"endpoints"`

	FirstSync syncResult              `json:"first_sync"`
	Changes   map[string]changeResult `json:"changes"`
	Least     measure.Quantiles       `json:"least_change_of_nf_tables"`
	Busy      measure.Quantiles       `json:"one_endpoint_replaced_without_pause"`
	Burst     burstResult             `json:"burst"`
	Load      loadResult              `json:"load"`
	Memory    memoryResult            `json:"memory"`
	Paths     measure.Comparison      `json:"connections"`
}

// syncResult is a first synchronization: from "all caches are complete" until the kernel has everything.
type syncResult struct {
	Median   float64 `json:"median_ms"`
	Kernel   float64 `json:"kernel_ms"` // of it in the system call
	Elements int     `json:"elements"`
	Bytes    int     `json:"bytes"`
	N        int     `json:"n"`
}

// changeResult is one kind of change, each made alone on an idle proxy.
type changeResult struct {
	measure.Quantiles
	Kernel     float64 `json:"kernel_p50_ms"`
	User       float64 `json:"user_p50_ms"` // everything else
	Operations float64 `json:"element_operations"`
	Bytes      float64 `json:"bytes"`
	Allocs     float64 `json:"allocations"`
	Passes     float64 `json:"transactions"`
}

// burstResult is many changes written into the store as fast as it takes them.
type burstResult struct {
	Changes      int     `json:"changes"`
	Transactions int     `json:"transactions"`
	Elapsed      float64 `json:"ms"`
}

// loadResult is what a steady stream of changes costs the whole process.
type loadResult struct {
	PerSecond    float64 `json:"changes_per_second"`
	CPU          float64 `json:"cpu_percent"` // of one core, user and system
	Transactions float64 `json:"transactions_per_second"`
}

// memoryResult is in bytes.
type memoryResult struct {
	RSS  int64 `json:"resident"`
	Peak int64 `json:"peak"`
	Heap int64 `json:"heap"` // after a collection
}

// largeResult is about Services that are large themselves.
type largeResult struct {
	BigService   bigService `json:"one_service_5000_endpoints"`
	NodePorts    nodePorts  `json:"node_ports_1000_services"`
	ManyPods     syncResult `json:"first_sync_250000_endpoints"`
	ManyServices int        `json:"first_sync_250000_endpoints_services"`
}

type bigService struct {
	FirstSync syncResult   `json:"first_sync"`
	Change    changeResult `json:"one_endpoint_replaced"`
}

type nodePorts struct {
	FirstSync syncResult   `json:"first_sync"`
	Change    changeResult `json:"one_endpoint_replaced"`
}
