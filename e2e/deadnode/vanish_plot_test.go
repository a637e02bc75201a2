//go:build e2e

package deadnode

import (
	"fmt"
	"strings"
	"time"
)

// The picture of BenchmarkVanish, in pixels: a panel of failures above a panel of latency.
const (
	plotWidth, plotHeight = 860, 520
	plotLeft, plotRight   = 70, 20
	panelHeight           = 170
	failuresTop           = 90
	latencyTop            = 310
	mostLatency           = 6 // seconds
)

// second is a second of a run.
type second struct {
	failed, all int
	slowest     time.Duration // of the connections that did not fail
}

// seconds divides a run, from calm before the death to the end.
func (r *vanishRun) seconds() []second {
	out := make([]second, int((calm+unchanged)/time.Second))
	for _, a := range r.attempts {
		i := int((a.began + calm) / time.Second)
		if i < 0 || i >= len(out) {
			continue
		}
		out[i].all++
		if a.err != nil {
			out[i].failed++
			continue
		}
		out[i].slowest = max(out[i].slowest, a.took)
	}
	return out
}

func drawVanish(runs []vanishRun) string {
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d' role='img' "+
		"font-family='system-ui, Helvetica, Arial, sans-serif' font-size='12' fill='#1f2328'>\n", plotWidth, plotHeight, plotWidth, plotHeight)
	fmt.Fprintf(&b, "<title>A node vanishes</title>\n<rect width='100%%' height='100%%' fill='#ffffff'/>\n")
	fmt.Fprintf(&b, "<text x='%d' y='28' font-size='17'>A node vanishes with 3 of 10 endpoints; the EndpointSlices do not change</text>\n", plotLeft)
	for i, r := range runs {
		fmt.Fprintf(&b, "<rect x='%d' y='42' width='14' height='4' fill='%s'/><text x='%d' y='50'>%s</text>\n",
			plotLeft+220*i, color(i), plotLeft+220*i+20, r.name)
	}
	panel(&b, failuresTop, fmt.Sprintf("failed connections a second, of %d (patience: 5 s)", *rate), float64(*rate)/2)
	panel(&b, latencyTop, "slowest connection of each second that did not fail, in seconds", mostLatency)
	for i := range runs {
		line(&b, failuresTop, color(i), float64(*rate)/2, runs[i].seconds(), func(s second) float64 { return float64(s.failed) })
		line(&b, latencyTop, color(i), mostLatency, runs[i].seconds(), func(s second) float64 { return s.slowest.Seconds() })
	}
	fmt.Fprintf(&b, "<text x='%d' y='%d' text-anchor='middle'>seconds after the node vanished</text>\n</svg>\n", plotWidth/2, plotHeight-6)
	return b.String()
}

func color(i int) string { return [...]string{"#0969da", "#bc4c00"}[i] }

// across is where a second is.
func across(s int) int {
	return plotLeft + s*(plotWidth-plotLeft-plotRight)/int((calm+unchanged)/time.Second)
}

// panel draws the axes.
func panel(b *strings.Builder, top int, title string, most float64) {
	bottom := top + panelHeight
	fmt.Fprintf(b, "<text x='%d' y='%d'>%s</text>\n", plotLeft, top-8, title)
	for i := range 3 {
		y := bottom - i*panelHeight/2
		fmt.Fprintf(b, "<line x1='%d' x2='%d' y1='%d' y2='%d' stroke='#d8dee4'/><text x='%d' y='%d' text-anchor='end'>%g</text>\n",
			plotLeft, plotWidth-plotRight, y, y, plotLeft-8, y+4, most*float64(i)/2)
	}
	death := int(calm / time.Second)
	for s := 0; s <= death+int(unchanged/time.Second); s += 5 {
		fmt.Fprintf(b, "<text x='%d' y='%d' text-anchor='middle'>%d</text>\n", across(s), bottom+18, s-death)
	}
	fmt.Fprintf(b, "<line x1='%d' x2='%d' y1='%d' y2='%d' stroke='#59636e' stroke-dasharray='4'/>\n", across(death), across(death), top, bottom)
}

func line(b *strings.Builder, top int, stroke string, most float64, list []second, of func(second) float64) {
	fmt.Fprintf(b, "<polyline fill='none' stroke='%s' stroke-width='2' points='", stroke)
	for i, s := range list {
		y := float64(top+panelHeight) - min(of(s)/most, 1)*panelHeight
		fmt.Fprintf(b, "%d,%.1f ", across(i)+8, y)
	}
	b.WriteString("'/>\n")
}
