//go:build e2e

package chaos

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// report formats what happened as tables.
func (g *game) report(took time.Duration) string {
	var text strings.Builder
	fmt.Fprintf(&text, "\nseed %d, %d rounds in %.0f s; %s\n\n", *seed, g.rounds, took.Seconds(), measure.ThisMachine())
	text.WriteString(g.outcome().String() + "\n" + g.faultTable().String())
	return text.String()
}

func (g *game) outcome() *measure.Table {
	l := g.ledger
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
	g.churn.mu.Lock()
	defer g.churn.mu.Unlock()
	repairs, settles := measure.Sample(g.editor.repairs), measure.Sample(g.settles)
	t := &measure.Table{Head: []string{"untouched Services", "made", "failed", "failed during foreign edits"}}
	t.Add("new connections", measure.Count(l.made), count(newConnection), measure.Count(l.excused[newConnection]))
	t.Add(fmt.Sprintf("- to Services with an endpoint that fails; the slowest took %s ms", measure.Short(measure.Milliseconds(l.slowest))), measure.Count(l.frail))
	t.Add("requests over open connections", measure.Count(l.requests), count(openConnection), measure.Count(l.excused[openConnection]))
	t.Add("clients sent to another endpoint in spite of affinity", "", count(affinityLost), measure.Count(l.excused[affinityLost]))
	t.Add(fmt.Sprintf("repairs: %d, p50 %s ms, p99 %s ms", len(repairs),
		measure.Short(measure.Milliseconds(repairs.Median())), measure.Short(measure.Milliseconds(repairs.Quantile(0.99)))))
	t.Add(fmt.Sprintf("rounds: kernel equal to a fresh plan after p50 %s ms, p99 %s ms",
		measure.Short(measure.Milliseconds(settles.Median())), measure.Short(measure.Milliseconds(settles.Quantile(0.99)))))
	if g.fast != nil {
		taken := slices.Sorted(slices.Values(g.fast.taken))
		t.Add(fmt.Sprintf("rounds with the fast path: %d; connections on it, whenever asked: %v", g.fast.rounds, taken))
	}
	t.Add(fmt.Sprintf("changes of other Services: %s (and %s that the API server did not take)",
		measure.Count(g.churn.written), measure.Count(g.churn.failed)))
	t.Add(fmt.Sprintf("system calls of the daemon that failed: %s, of these short reads: %s",
		measure.Count(int(l.failed)), measure.Count(int(l.shortened))))
	return t
}

func (g *game) faultTable() *measure.Table {
	t := &measure.Table{Head: []string{"fault", "times"}}
	for _, name := range slices.Sorted(maps.Keys(g.count)) {
		t.Add(name, measure.Count(g.count[name]))
	}
	return t
}
