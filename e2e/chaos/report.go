package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// report formats what happened as tables.
func (b *bed) report(took time.Duration) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nseed %d, %d rounds in %.0f s; %s\n\n", b.options.seed, b.rounds, took.Seconds(), measure.ThisMachine())
	text.WriteString(b.outcome().String() + "\n" + b.faultTable().String())
	return text.String()
}

func (b *bed) outcome() *measure.Table {
	l := b.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	count := func(kind string) string {
		broken := 0
		for _, f := range l.broken {
			if f.kind == kind {
				broken++
			}
		}
		return measure.Count(broken)
	}
	b.churn.mu.Lock()
	defer b.churn.mu.Unlock()
	repairs, settles := measure.Sample(b.repairs), measure.Sample(b.settles)
	t := &measure.Table{Head: []string{"untouched Services", "made", "failed", "failed during foreign edits"}}
	t.Add("new connections", measure.Count(l.made), count(newConnection), measure.Count(l.excused[newConnection]))
	t.Add("requests over open connections", measure.Count(l.requests), count(openConnection), measure.Count(l.excused[openConnection]))
	t.Add("clients sent to another endpoint in spite of affinity", "", count(affinityLost), measure.Count(l.excused[affinityLost]))
	t.Add(fmt.Sprintf("repairs: %d, p50 %s ms, p99 %s ms", len(repairs),
		measure.Short(measure.Milliseconds(repairs.Median())), measure.Short(measure.Milliseconds(repairs.Quantile(0.99)))))
	t.Add(fmt.Sprintf("rounds: kernel equal to a fresh plan after p50 %s ms, p99 %s ms",
		measure.Short(measure.Milliseconds(settles.Median())), measure.Short(measure.Milliseconds(settles.Quantile(0.99)))))
	t.Add(fmt.Sprintf("changes of other Services: %s (and %s that the API server did not take)",
		measure.Count(b.churn.written), measure.Count(b.churn.failed)))
	t.Add(fmt.Sprintf("system calls of the daemon that failed: %s, of these short reads: %s",
		measure.Count(int(b.injected)), measure.Count(int(b.shortened))))
	return t
}

func (b *bed) faultTable() *measure.Table {
	t := &measure.Table{Head: []string{"fault", "times"}}
	for _, name := range slices.Sorted(maps.Keys(b.count)) {
		t.Add(name, measure.Count(b.count[name]))
	}
	return t
}
