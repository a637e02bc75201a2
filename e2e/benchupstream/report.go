package main

import (
	"fmt"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// suffix ends the names of all benchmarks of a proxy at a size.
func suffix(k *proxyKind, services int) string {
	return fmt.Sprintf("/proxy=%s/services=%d", k.id, services)
}

// report formats measurements as one table for each size, with a column for each proxy.
func report(l *measure.Lines, sizes []int) (text string) {
	for _, services := range sizes {
		var kinds []*proxyKind
		for _, k := range proxyKinds() {
			if l.Has("FirstSync" + suffix(k, services)) {
				kinds = append(kinds, k)
			}
		}
		text += "\n" + sizeTable(l, kinds, services).String()
	}
	return text
}

// sizeTable compares proxies at one size. Ratios to the first proxy stand in parentheses.
func sizeTable(l *measure.Lines, kinds []*proxyKind, services int) *measure.Table {
	t := &measure.Table{Head: []string{measure.Count(services) + " services, 10 endpoints each"}}
	for _, k := range kinds {
		t.Head = append(t.Head, k.name)
	}
	at := func(benchmark string, column int) string { return benchmark + suffix(kinds[column], services) }
	number := func(row, benchmark, unit string, scale float64) {
		t.Row(row, func(i int) string { return measure.Short(l.Median(at(benchmark, i), unit) / scale) })
	}
	times := func(row, benchmark, unit string) {
		t.Row(row, func(i int) string {
			v, first := l.Milliseconds(at(benchmark, i), unit), l.Milliseconds(at(benchmark, 0), unit)
			return measure.Short(v) + measure.Ratio(v, first)
		})
	}
	const milliseconds, seconds = 1e6, 1e9
	times("first sync, ms", "FirstSync", "ns/op")
	times("start to first sync done, ms", "FirstSync", "start-ns")
	number("CPU until then, with children, s", "FirstSync", "cpu-ns", seconds)
	times("one endpoint added, PUT sent to kernel done, p50, ms", "EndpointAdded", "p50-ns")
	number("- slowest", "EndpointAdded", "p99-ns", milliseconds)
	number("- the PUT alone, p50", "EndpointAdded", "put-p50-ns", milliseconds)
	t.Row(fmt.Sprintf("the same at %d changes per second, p50 / slowest, ms", streamPerSecond), func(i int) string {
		if kinds[i].legacy {
			return "not measured"
		}
		return l.Quantiles(at("Stream", i))
	})
	number(fmt.Sprintf("CPU at %d changes per second, with children, %% of a core", streamPerSecond), "Stream", "cpu-%", 1)
	t.Row("CPU under a busy stream (its rate per second)", func(i int) string {
		return fmt.Sprintf("%s (%.0f)", measure.Short(l.Median(at("BusyStream", i), "cpu-%")), l.Median(at("BusyStream", i), "changes/sec"))
	})
	memoryRows(t, l, at)
	for row, name := range measure.ComparisonRows() {
		t.Row(name, func(i int) string { return measure.ComparisonCells(l, suffix(kinds[i], services))[row] })
	}
	return t
}

func memoryRows(t *measure.Table, l *measure.Lines, at func(string, int) string) {
	mib := func(unit string, i int) string { return fmt.Sprintf("%.0f", l.Median(at("Memory", i), unit)/(1<<20)) }
	t.Row("resident memory after sync (at its peak), MiB", func(i int) string { return mib("resident-B", i) + " (" + mib("peak-B", i) + ")" })
	t.Row("largest child process, MiB", func(i int) string { return mib("largest-child-B", i) })
	t.Row("kernel memory, MiB", func(i int) string { return mib("kernel-B", i) })
	t.Row("chains / rules / sets and maps", func(i int) string {
		count := func(unit string) string { return measure.Count(l.Count(at("Rules", i), unit)) }
		return count("chains") + " / " + count("rules") + " / " + count("sets")
	})
}

// plot draws the latency of one change.
func plot(l *measure.Lines, sizes []int, m measure.Machine) string {
	p := measure.Plot{
		Title:    "One endpoint added: from the PUT to the API server until the kernel has it",
		Subtitle: "10 endpoints per Service; " + m.String(),
		X:        "Services", Y: "milliseconds (median)",
	}
	for _, k := range proxyKinds() {
		line := measure.Line{Name: k.name}
		for _, services := range sizes {
			if name := "EndpointAdded" + suffix(k, services); l.Has(name) {
				line.Points = append(line.Points, measure.Point{X: float64(services), Y: l.Milliseconds(name, "p50-ns")})
			}
		}
		p.Lines = append(p.Lines, line)
	}
	return p.SVG()
}
