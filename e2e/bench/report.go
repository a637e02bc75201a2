package main

import (
	"fmt"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// report formats a result as tables.
func report(r *result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s; took %.0f s\n\n", r.Machine, r.Seconds)
	b.WriteString(sizesTable(r.Sizes).String())
	if r.Large != nil {
		b.WriteString("\n" + largeTable(r.Large).String())
	}
	return b.String()
}

// sizesTable has a column for each size. Where the cost should not depend on the size, it shows the ratio to the
// smallest size in parentheses.
func sizesTable(sizes []sizeResult) *measure.Table {
	t := &measure.Table{Head: []string{"services (10 endpoints each)"}}
	for i := range sizes {
		t.Head = append(t.Head, measure.Count(sizes[i].Services))
	}
	row := func(name string, cell func(*sizeResult) string) {
		cells := []string{name}
		for i := range sizes {
			cells = append(cells, cell(&sizes[i]))
		}
		t.Add(cells...)
	}
	row("first sync, median (of it kernel), ms", func(s *sizeResult) string {
		return fmt.Sprintf("%s (%s)", measure.Short(s.FirstSync.Median), measure.Short(s.FirstSync.Kernel))
	})
	row("first sync, elements; KiB", func(s *sizeResult) string {
		return fmt.Sprintf("%s; %s", measure.Count(s.FirstSync.Elements), measure.Count(s.FirstSync.Bytes>>10))
	})
	for _, kind := range changeKinds() {
		changeRows(row, kind.row, &sizes[0])
	}
	row("least change of nf_tables after the same pause, p50 / p99, ms", func(s *sizeResult) string {
		return quantiles(s.Least)
	})
	row("one endpoint replaced, without a pause, p50 / p99, ms", func(s *sizeResult) string {
		return quantiles(s.Busy) + ratio(s.Busy.P50, sizes[0].Busy.P50)
	})
	changes := measure.Count(sizes[0].Burst.Changes)
	row(fmt.Sprintf("burst of %s endpoint changes, transactions; ms", changes), func(s *sizeResult) string {
		return fmt.Sprintf("%d; %s", s.Burst.Transactions, measure.Short(s.Burst.Elapsed))
	})
	row(fmt.Sprintf("CPU at %d endpoint changes per second, %% of a core", streamRate), func(s *sizeResult) string {
		return withRatio(s.Load.CPU, sizes[0].Load.CPU)
	})
	row("resident memory (at its peak), MiB", func(s *sizeResult) string {
		return fmt.Sprintf("%d (%d)", s.Memory.RSS>>20, s.Memory.Peak>>20)
	})
	row("Go heap after a collection, MiB", func(s *sizeResult) string { return fmt.Sprint(s.Memory.Heap >> 20) })
	pathRows(row)
	return t
}

func changeRows(row func(string, func(*sizeResult) string), kind string, first *sizeResult) {
	row(kind+", p50 / p99, ms", func(s *sizeResult) string {
		c := s.Changes[kind]
		return quantiles(c.Quantiles) + ratio(c.P50, first.Changes[kind].P50)
	})
	row("- kernel + user, p50, ms", func(s *sizeResult) string {
		return kernelAndUser(s.Changes[kind])
	})
	row("- transactions, element operations, bytes, allocations", func(s *sizeResult) string {
		c := s.Changes[kind]
		return fmt.Sprintf("%.0f, %.1f, %.0f, %.0f", c.Passes, c.Operations, c.Bytes, c.Allocs)
	})
}

func pathRows(row func(string, func(*sizeResult) string)) {
	for i, name := range measure.ComparisonRows() {
		row(name, func(s *sizeResult) string { return s.Paths.Cells()[i] })
	}
}

// quantiles shows the median and the slowest of a hundred.
func quantiles(q measure.Quantiles) string {
	return measure.Short(q.P50) + " / " + measure.Short(q.P99)
}

func kernelAndUser(c changeResult) string {
	return measure.Short(c.Kernel) + " + " + measure.Short(c.User)
}

func withRatio(v, first float64) string { return measure.Short(v) + ratio(v, first) }

func ratio(v, first float64) string {
	if first == 0 {
		return ""
	}
	return fmt.Sprintf(" (×%.2f)", v/first)
}

func largeTable(l *largeResult) *measure.Table {
	t := &measure.Table{Head: []string{
		"large Services", "first sync, ms", "one endpoint replaced, p50 / p99, ms", "kernel + user, p50, ms",
	}}
	add := func(name string, s syncResult, c changeResult) {
		t.Add(name, measure.Short(s.Median), quantiles(c.Quantiles), kernelAndUser(c))
	}
	add(fmt.Sprintf("one Service, %s endpoints", measure.Count(bigEndpoints)), l.BigService.FirstSync, l.BigService.Change)
	add(fmt.Sprintf("%s Services on node ports", measure.Count(nodePortCount)), l.NodePorts.FirstSync, l.NodePorts.Change)
	services, endpoints := measure.Count(l.ManyServices), measure.Count(l.ManyServices*manyEach)
	t.Add(fmt.Sprintf("%s Services, %s endpoints", services, endpoints), measure.Short(l.ManyPods.Median), "", "")
	return t
}
