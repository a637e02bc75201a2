package main

import (
	"fmt"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// result holds all figures of a run in the form of the JSON output.
type result struct {
	Machine measure.Machine `json:"machine"`
	Sizes   []sizeResult    `json:"sizes"`
	Large   *largeResult    `json:"large,omitempty"`
	Seconds float64         `json:"seconds"`
}

// sizeResult holds the figures of one size.
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
	Kernel   float64 `json:"kernel_ms"` // the part of it in the system call
	Elements int     `json:"elements"`
	Bytes    int     `json:"bytes"`
	N        int     `json:"n"`
}

// changeResult is one kind of change. Each change is alone and meets an idle proxy.
type changeResult struct {
	measure.Quantiles
	Kernel     float64 `json:"kernel_p50_ms"`
	User       float64 `json:"user_p50_ms"` // everything else
	Operations float64 `json:"element_operations"`
	Bytes      float64 `json:"bytes"`
	Allocs     float64 `json:"allocations"`
	Passes     float64 `json:"transactions"`
}

// burstResult is many changes, written into the store without a pause.
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
	Heap int64 `json:"heap"` // after a garbage collection
}

// largeResult holds the figures of single large Services.
type largeResult struct {
	BigService   largeCase  `json:"one_service_5000_endpoints"`
	NodePorts    largeCase  `json:"node_ports_1000_services"`
	ManyPods     syncResult `json:"first_sync_250000_endpoints"`
	ManyServices int        `json:"first_sync_250000_endpoints_services"`
}

// largeCase is a cluster with large Services: its first synchronization, and changes after it.
type largeCase struct {
	FirstSync syncResult   `json:"first_sync"`
	Change    changeResult `json:"one_endpoint_replaced"`
}

// sizeSuffix ends the names of all benchmarks of a size.
func sizeSuffix(services int) string { return fmt.Sprintf("services=%d", services) }

// size returns the figures of one size.
func (f *figures) size(services int) sizeResult {
	at := "/" + sizeSuffix(services)
	out := sizeResult{
		Services: services, Endpoints: services * perService,
		FirstSync: f.sync("FirstSync" + at),
		Changes:   map[string]changeResult{},
		Least:     f.quantiles("LeastChange" + at),
		Busy:      f.quantiles("EndpointReplacedBusy" + at),
		Burst: burstResult{
			Changes:      f.count("Burst"+at, "changes/op"),
			Transactions: f.count("Burst"+at, "transactions/op"),
			Elapsed:      f.milliseconds("Burst"+at, "ns/op"),
		},
		Load: loadResult{
			PerSecond:    f.median("Stream"+at, "changes/sec"),
			CPU:          f.median("Stream"+at, "cpu-%"),
			Transactions: f.median("Stream"+at, "transactions/sec"),
		},
		Memory: memoryResult{
			RSS:  int64(f.median("Memory"+at, "resident-B")),
			Peak: int64(f.median("Memory"+at, "peak-B")),
			Heap: int64(f.median("Memory"+at, "heap-B")),
		},
		Paths: f.comparison(at),
	}
	for _, kind := range changeKinds() {
		out.Changes[kind.row] = f.change(kind.benchmark + at)
	}
	return out
}

// large returns the figures of clusters with large Services.
func (f *figures) large(manyServices int) *largeResult {
	of := func(name string) largeCase {
		at := "/" + caseSuffix(name)
		return largeCase{FirstSync: f.sync("FirstSync" + at), Change: f.change("EndpointReplaced" + at)}
	}
	return &largeResult{
		BigService: of(bigCase), NodePorts: of(nodePortCase),
		ManyPods: f.sync("FirstSync/" + caseSuffix(manyCase)), ManyServices: manyServices,
	}
}

func (f *figures) sync(name string) syncResult {
	return syncResult{
		Median: f.milliseconds(name, "ns/op"), Kernel: f.milliseconds(name, "kernel-ns/op"),
		Elements: f.count(name, "elements/op"), Bytes: f.count(name, "wire-B/op"), N: f.iterations(name),
	}
}

func (f *figures) change(name string) changeResult {
	return changeResult{
		Quantiles: f.quantiles(name),
		Kernel:    f.milliseconds(name, "kernel-p50-ns"), User: f.milliseconds(name, "user-p50-ns"),
		Operations: f.median(name, "operations/op"), Bytes: f.median(name, "wire-B/op"),
		Allocs: f.median(name, "objects/op"), Passes: f.median(name, "transactions/op"),
	}
}

func (f *figures) quantiles(name string) measure.Quantiles {
	return measure.Quantiles{
		P50: f.milliseconds(name, "p50-ns"), P99: f.milliseconds(name, "p99-ns"), N: f.iterations(name),
	}
}

// comparison returns the connections over three paths.
func (f *figures) comparison(at string) measure.Comparison {
	path := func(name string) measure.PathResult {
		const microsecond = 1000
		return measure.PathResult{
			P50: f.median(name, "p50-ns") / microsecond, P99: f.median(name, "p99-ns") / microsecond,
			Rate: f.median(name, "connections/sec"),
		}
	}
	proxy := "Connections/path=proxy" + at
	return measure.Comparison{
		Proxy: path(proxy), OneRule: path("Connections/path=one-rule" + at), NoRule: path("Connections/path=no-rule" + at),
		ToRule: f.median(proxy, "to-one-rule"), ToNone: f.median(proxy, "to-no-rule"),
	}
}
