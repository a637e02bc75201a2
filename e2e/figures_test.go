package e2e

import (
	"fmt"
	"html"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// upstreamFigures are the figures of one run of "make bench-upstream", as RESULTS.md has them.
type upstreamFigures struct {
	proxies []string                      // the columns
	values  map[string]map[string]float64 // by row and proxy
}

// readFigures reads the table that benchtable.sh wrote.
func readFigures(t *testing.T, results string) (f upstreamFigures, machine string) {
	t.Helper()
	_, rest, begins := strings.Cut(results, "<!-- bench-upstream: begin -->\n")
	text, _, ends := strings.Cut(rest, "<!-- bench-upstream: end -->")
	machine, text, table := strings.Cut(text, "\n\n")
	if !begins || !ends || !table {
		t.Fatal("RESULTS.md has no table of bench-upstream")
	}
	f = upstreamFigures{values: map[string]map[string]float64{}}
	for line := range strings.Lines(text) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case f.proxies == nil:
			f.proxies = cells[2:]
		case !strings.HasPrefix(cells[0], "--"):
			row := map[string]float64{}
			for i, cell := range cells[2:] {
				if v, err := strconv.ParseFloat(cell, 64); err == nil { // others were not measured
					row[f.proxies[i]] = v
				}
			}
			f.values[strings.TrimPrefix(cells[0], "Proxy/services=")+" "+cells[1]] = row
		}
	}
	return f, machine
}

// ours is a figure of Verdict. A unit that is a sum has a "+" between its parts.
func (f *upstreamFigures) ours(services int, unit string) float64 {
	return f.of("verdict", services, unit)
}

// upstreams is the figure of the best setting of kube-proxy nftables.
func (f *upstreamFigures) upstreams(services int, unit string, better func(a, b float64) float64) float64 {
	best := math.NaN()
	for _, p := range f.proxies {
		if v := f.of(p, services, unit); strings.HasPrefix(p, "nftables") && !math.IsNaN(v) {
			if best = better(best, v); math.IsNaN(best) {
				best = v
			}
		}
	}
	return best
}

func (f *upstreamFigures) of(proxy string, services int, unit string) (sum float64) {
	for part := range strings.SplitSeq(unit, "+") {
		v, ok := f.values[fmt.Sprint(services, " ", part)][proxy]
		if !ok {
			return math.NaN()
		}
		sum += v
	}
	return sum
}

// figure prints a number as the documents do.
func figure(v float64) string {
	switch {
	case v < 10:
		return fmt.Sprintf("%.2g", v)
	case v < 100:
		return fmt.Sprintf("%.3g", v)
	}
	return measure.Count(int(v + 0.5))
}

// TestUpstreamFigures expects the figures of "make bench-upstream" in the README, in the targets of RESULTS.md and in the plot to be
// those of the table in RESULTS.md. The README compares with the best setting of kube-proxy in each row.
func TestUpstreamFigures(t *testing.T) {
	results := readText(t, "RESULTS.md")
	f, machine := readFigures(t, results)
	const sync, added, memory, rate = "first-sync-ns, ms", "added-p50-ns, ms", "resident-B, MiB+largest-child-B, MiB", "proxy-to-one-rule"
	syncs := [2]float64{f.ours(10_000, sync) / 1000, f.upstreams(10_000, sync, math.Min) / 1000}
	changes := [2]float64{f.ours(10_000, added), f.upstreams(10_000, added, math.Min)}
	put := [2]float64{f.ours(10_000, "put-p50-ns, ms"), f.upstreams(10_000, "put-p50-ns, ms", math.Min)}
	for _, quote := range []struct{ document, text string }{
		{"../README.md", fmt.Sprintf("| 10,000 Services: first sync | %s s | %s s |", figure(syncs[0]), figure(syncs[1]))},
		{"../README.md", fmt.Sprintf("| one endpoint added, from the PUT until the kernel has it (the PUT alone: %s, %s ms) | %s ms | %s ms |",
			figure(put[0]), figure(put[1]), figure(changes[0]), figure(changes[1]))},
		{"../README.md", fmt.Sprintf("| resident memory, with child processes | %s MiB | %s MiB |",
			figure(f.ours(10_000, memory)), figure(f.upstreams(10_000, memory, math.Min)))},
		{"../README.md", fmt.Sprintf("| connections per second, compared with a single hand-written DNAT rule | %.0f %% | %.0f %% |",
			100*f.ours(10_000, rate), 100*f.upstreams(10_000, rate, math.Max))},
		{"../README.md", fmt.Sprintf("| 50,000 Services: first sync; one endpoint added; memory | %s s; %s ms; %s MiB | not measured |",
			figure(f.ours(50_000, sync)/1000), figure(f.ours(50_000, added)), figure(f.ours(50_000, memory)))},
		{"RESULTS.md", fmt.Sprintf("%.0f times (%s s and %s s)", syncs[1]/syncs[0], figure(syncs[0]), figure(syncs[1]))},
		{"RESULTS.md", fmt.Sprintf("| %s ms; %.0f times |", figure(changes[0]), changes[1]/changes[0])},
		{"RESULTS.md", fmt.Sprintf("| %s MiB (%s at its peak), none", figure(f.ours(10_000, "resident-B, MiB")), figure(f.ours(10_000, "peak-B, MiB")))},
		{"RESULTS.md", fmt.Sprintf("| %s MiB (%s at its peak) |", figure(f.ours(50_000, "resident-B, MiB")), figure(f.ours(50_000, "peak-B, MiB")))},
	} {
		if !strings.Contains(readText(t, quote.document), quote.text) {
			t.Errorf("%s has other figures than the run of %s; write\n%s", quote.document, machine, quote.text)
		}
	}
	checkPlot(t, f, machine)
}

// checkPlot expects the plot to be of the same run.
func checkPlot(t *testing.T, f upstreamFigures, machine string) {
	t.Helper()
	var labels []float64
	subtitle := ""
	for _, m := range regexp.MustCompile(`<text [^>]*>([^<]*)</text>`).FindAllStringSubmatch(readText(t, "change-latency.svg"), -1) {
		text := html.UnescapeString(m[1])
		if v, err := strconv.ParseFloat(strings.ReplaceAll(text, ",", ""), 64); err == nil {
			labels = append(labels, v)
		}
		if _, after, found := strings.Cut(text, "10 endpoints per Service; "); found {
			subtitle = after
		}
	}
	if subtitle == "" || !strings.Contains(machine, subtitle) {
		t.Errorf("the plot is of the run %q, the table of %q", subtitle, machine)
	}
	for row, values := range f.values {
		for proxy, v := range values {
			drawn := false
			for _, label := range labels {
				drawn = drawn || math.Abs(label-v) <= 0.005*v
			}
			if strings.HasSuffix(row, " added-p50-ns, ms") && !drawn {
				t.Errorf("the plot lacks %v ms of %s at %s", v, proxy, row)
			}
		}
	}
}
