package main

import (
	"fmt"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// report formats a result as one table for each size, with a column for each proxy.
func report(r *result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; took %.0f s\n", r.Machine, r.Seconds)
	for i := 0; i < len(r.Runs); {
		j := i
		for j < len(r.Runs) && r.Runs[j].Services == r.Runs[i].Services {
			j++
		}
		b.WriteString("\n" + sizeTable(r.Runs[i:j]).String())
		i = j
	}
	return b.String()
}

// sizeTable compares proxies at one size. Ratios to the first proxy stand in parentheses.
func sizeTable(runs []run) *measure.Table {
	t := &measure.Table{Head: []string{measure.Count(runs[0].Services) + " services, 10 endpoints each"}}
	for i := range runs {
		t.Head = append(t.Head, runs[i].Proxy)
	}
	row := func(name string, cell func(*run) string) {
		cells := []string{name}
		for i := range runs {
			cells = append(cells, cell(&runs[i]))
		}
		t.Add(cells...)
	}
	first := &runs[0]
	row("first sync, ms", func(r *run) string { return times(r.FirstSync, first.FirstSync) })
	row("start to first sync done, ms", func(r *run) string { return times(r.Start, first.Start) })
	row("CPU until then, with children, s", func(r *run) string { return measure.Short(r.SyncCPU) })
	row("one endpoint added, PUT sent to kernel done, p50, ms", func(r *run) string { return times(r.Change.P50, first.Change.P50) })
	row("- slowest", func(r *run) string { return measure.Short(r.Change.P99) })
	row("- the PUT alone, p50", func(r *run) string { return measure.Short(r.Put.P50) })
	row(fmt.Sprintf("the same at %d changes per second, p50 / slowest, ms", streamPerSecond), func(r *run) string {
		if r.Stream.N == 0 {
			return "not measured"
		}
		return measure.Short(r.Stream.P50) + " / " + measure.Short(r.Stream.P99)
	})
	row(fmt.Sprintf("CPU at %d changes per second, with children, %% of a core", streamPerSecond), func(r *run) string {
		return measure.Short(r.StreamCPU)
	})
	row("CPU under a busy stream (its rate per second)", func(r *run) string {
		return fmt.Sprintf("%s (%.0f)", measure.Short(r.BusyCPU), r.BusyRate)
	})
	memoryRows(row)
	for i, name := range measure.ComparisonRows() {
		row(name, func(r *run) string { return r.Paths.Cells()[i] })
	}
	return t
}

func memoryRows(row func(string, func(*run) string)) {
	mib := func(n int64) string { return fmt.Sprintf("%.0f", float64(n)/(1<<20)) }
	row("resident memory after sync (at its peak), MiB", func(r *run) string { return mib(r.Resident) + " (" + mib(r.Peak) + ")" })
	row("largest child process, MiB", func(r *run) string { return mib(r.LargestChild) })
	row("kernel memory, MiB", func(r *run) string { return mib(r.Kernel) })
	row("chains / rules / sets and maps", func(r *run) string {
		return measure.Count(r.Chains) + " / " + measure.Count(r.Rules) + " / " + measure.Count(r.Sets)
	})
}

// times shows a number and its ratio to the first one.
func times(v, first float64) string {
	if first == 0 || v == first {
		return measure.Short(v)
	}
	return fmt.Sprintf("%s (×%s)", measure.Short(v), measure.Short(v/first))
}

// plot draws the latency of one change.
func plot(r *result) string {
	p := measure.Plot{
		Title:    "One endpoint added: from the PUT to the API server until the kernel has it",
		Subtitle: "10 endpoints per Service; " + r.Machine.String(),
		X:        "Services", Y: "milliseconds (median)",
	}
	for _, k := range proxyKinds() {
		line := measure.Line{Name: k.name}
		for i := range r.Runs {
			if r.Runs[i].Proxy == k.name {
				line.Points = append(line.Points, measure.Point{X: float64(r.Runs[i].Services), Y: r.Runs[i].Change.P50})
			}
		}
		p.Lines = append(p.Lines, line)
	}
	return p.SVG()
}
