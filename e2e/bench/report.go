package main

import (
	"fmt"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// report formats measurements as tables.
func report(l *measure.Lines, o options) string {
	text := sizesTable(l, o.sizes).String()
	if o.large {
		text += "\n" + largeTable(l).String()
	}
	return text
}

// sizesTable has a column for each size. Where the cost should not depend on the size, it shows the ratio to the
// smallest size in parentheses.
func sizesTable(l *measure.Lines, sizes []int) *measure.Table {
	t := &measure.Table{Head: []string{"services (10 endpoints each)"}}
	for _, n := range sizes {
		t.Head = append(t.Head, measure.Count(n))
	}
	at := func(benchmark string, column int) string { return benchmark + "/" + sizeSuffix(sizes[column]) }
	ratio := func(benchmark, unit string, column int) string {
		return measure.Ratio(l.Median(at(benchmark, column), unit), l.Median(at(benchmark, 0), unit))
	}
	mib := func(unit string, column int) int { return l.Count(at("Memory", column), unit) >> 20 }

	t.Row("first sync, median (of it kernel), ms", func(i int) string {
		sync := at("FirstSync", i)
		return measure.Short(l.Milliseconds(sync, "ns/op")) + " (" + measure.Short(l.Milliseconds(sync, "kernel-ns/op")) + ")"
	})
	t.Row("first sync, elements; KiB", func(i int) string {
		sync := at("FirstSync", i)
		return measure.Count(l.Count(sync, "elements/op")) + "; " + measure.Count(l.Count(sync, "wire-B/op")>>10)
	})
	for _, kind := range changeKinds() {
		t.Row(kind.row+", p50 / p99, ms", func(i int) string {
			return l.Quantiles(at(kind.benchmark, i)) + ratio(kind.benchmark, "p50-ns", i)
		})
		t.Row("- kernel + user, p50, ms", func(i int) string { return kernelAndUser(l, at(kind.benchmark, i)) })
		t.Row("- transactions, element operations, bytes, allocations", func(i int) string {
			of := func(unit string) float64 { return l.Median(at(kind.benchmark, i), unit) }
			return fmt.Sprintf("%.0f, %.1f, %.0f, %.0f", of("transactions/op"), of("operations/op"), of("wire-B/op"), of("objects/op"))
		})
	}
	t.Row("least change of nf_tables after the same pause, p50 / p99, ms", func(i int) string {
		return l.Quantiles(at("LeastChange", i))
	})
	t.Row("one endpoint replaced, without a pause, p50 / p99, ms", func(i int) string {
		return l.Quantiles(at("EndpointReplacedBusy", i)) + ratio("EndpointReplacedBusy", "p50-ns", i)
	})
	t.Row("burst of endpoint changes: changes, transactions; ms", func(i int) string {
		burst := at("Burst", i)
		return fmt.Sprintf("%d, %d; %s", l.Count(burst, "changes/op"), l.Count(burst, "transactions/op"),
			measure.Short(l.Milliseconds(burst, "ns/op")))
	})
	t.Row(fmt.Sprintf("CPU at %d endpoint changes per second, %% of a core", streamRate), func(i int) string {
		return measure.Short(l.Median(at("Stream", i), "cpu-%")) + ratio("Stream", "cpu-%", i)
	})
	t.Row("resident memory (at its peak), MiB", func(i int) string {
		return fmt.Sprintf("%d (%d)", mib("resident-B", i), mib("peak-B", i))
	})
	t.Row("Go heap after a collection, MiB", func(i int) string { return fmt.Sprint(mib("heap-B", i)) })
	for row, name := range measure.ComparisonRows() {
		t.Row(name, func(i int) string { return measure.ComparisonCells(l, at("", i))[row] })
	}
	return t
}

func kernelAndUser(l *measure.Lines, name string) string {
	return measure.Short(l.Milliseconds(name, "kernel-p50-ns")) + " + " + measure.Short(l.Milliseconds(name, "user-p50-ns"))
}

func largeTable(l *measure.Lines) *measure.Table {
	t := &measure.Table{Head: []string{
		"large Services", "first sync, ms", "one endpoint replaced, p50 / p99, ms", "kernel + user, p50, ms",
	}}
	sync := func(name string) string { return measure.Short(l.Milliseconds("FirstSync/"+name, "ns/op")) }
	add := func(text, name string) {
		change := "EndpointReplaced/" + name
		t.Add(text, sync(name), l.Quantiles(change), kernelAndUser(l, change))
	}
	add(fmt.Sprintf("one Service, %s endpoints", measure.Count(bigEndpoints)), bigCase)
	add(fmt.Sprintf("%s Services on node ports", measure.Count(nodePortCount)), nodePortCase)
	endpoints := l.Count("FirstSync/"+manyCase, "endpoints/op")
	t.Add(fmt.Sprintf("%s Services, %s endpoints", measure.Count(endpoints/manyEach), measure.Count(endpoints)), sync(manyCase), "", "")
	return t
}
