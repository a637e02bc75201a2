package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// Notable lists the connections that were late or failed, by time.
func (r *Run) Notable() string {
	type line struct {
		at   time.Time
		text string
	}
	var list []line
	for _, w := range r.Ways {
		for _, a := range w.Attempts {
			if a.Outcome != rate.Answered || a.Took > LateAfter {
				list = append(list, line{a.Began, r.describe(w.Name, a)})
			}
		}
	}
	slices.SortStableFunc(list, func(a, b line) int { return a.at.Compare(b.at) })
	var out strings.Builder
	for _, l := range list {
		out.WriteString(l.text)
	}
	return out.String()
}

func (r *Run) describe(way string, a rate.Attempt) string {
	number, since := r.update(a.Began)
	return fmt.Sprintf("%s  update %2d + %5.2f s  %-30s port %5d -> %-22s %-11s handshake %7.1f ms, took %7.1f ms %s %s\n",
		a.Began.UTC().Format("15:04:05.000000"), number, since.Seconds(), way, a.SourcePort, a.To, a.Outcome,
		measure.Milliseconds(a.Handshake), measure.Milliseconds(a.Took), a.Server, a.Error)
}

// Table has a row for each way and proxy. All runs have the same ways.
func Table(runs []*Run) string {
	t := measure.Table{Head: []string{"connections", "proxy", "number", "refused", "unreachable", "timeout",
		"cut after the handshake", "late", "p50", "p99", "slowest"}}
	if len(runs) == 0 {
		return t.String()
	}
	for i, w := range runs[0].Ways {
		for _, r := range runs {
			t.Add(append([]string{w.Name, r.Proxy}, cells(r.Ways[i].Attempts)...)...)
		}
	}
	return t.String()
}

// cells counts connections. Latency is that of connections with an answer.
func cells(list []rate.Attempt) []string {
	count := map[rate.Outcome]int{}
	late := 0
	var took measure.Sample
	for _, a := range list {
		count[a.Outcome]++
		if a.Outcome != rate.Answered {
			continue
		}
		took = append(took, a.Took)
		if a.Took > LateAfter {
			late++
		}
	}
	out := []string{measure.Count(len(list))}
	for _, n := range []int{
		count[rate.Refused], count[rate.Unreachable], count[rate.Timeout], count[rate.Reset] + count[rate.Silent], late,
	} {
		out = append(out, measure.Count(n))
	}
	for _, q := range []float64{0.5, 0.99, 1} {
		out = append(out, measure.Short(measure.Milliseconds(took.Quantile(q)))+" ms")
	}
	return out
}
