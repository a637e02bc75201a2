package measure

import (
	"fmt"
	"html"
	"strings"
)

// Timeline is a picture of panels, one above the other, with seconds on their common axis and the same lines in each. An
// event happens at second 0.
type Timeline struct {
	Title string
	X     string   // label of the axis
	Begin int      // the first second, not above 0
	Names []string // of the lines
	// Panels have a line for each name.
	Panels []Panel
}

// Panel is one panel of a timeline.
type Panel struct {
	Title string
	Most  float64     // the upper end of the axis; values above it are drawn there
	Lines [][]float64 // the values of each line, second by second
}

// Layout in pixels.
const (
	timelineWidth, panelHeight  = 860, 170
	timelineLeft, timelineRight = 70, 20
	timelineTop, panelDistance  = 90, 220
	legendWidth                 = 220
)

func (t *Timeline) seconds() (most int) {
	for _, p := range t.Panels {
		for _, l := range p.Lines {
			most = max(most, len(l))
		}
	}
	return most
}

// across is where a second begins.
func (t *Timeline) across(second int) float64 {
	share := float64(second-t.Begin) / float64(max(t.seconds(), 1))
	return timelineLeft + share*(timelineWidth-timelineLeft-timelineRight)
}

// SVG draws the timeline. It has its own background and is readable on a dark page, too.
func (t *Timeline) SVG() string {
	height := timelineTop + len(t.Panels)*panelDistance
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %[1]d %[2]d' width='%[1]d' height='%[2]d' role='img' %[3]s>\n",
		timelineWidth, height, plotFont)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width='100%%' height='100%%' fill='%s'/>\n", html.EscapeString(t.Title), plotBackground)
	text(&b, timelineLeft, 28, "start", plotText, 17, t.Title)
	for i, name := range t.Names {
		x := timelineLeft + legendWidth*i
		fmt.Fprintf(&b, "<rect x='%d' y='42' width='14' height='4' fill='%s'/>\n", x, plotColors()[i])
		text(&b, float64(x+20), 50, "start", plotText, 13, name)
	}
	for i, p := range t.Panels {
		t.panel(&b, p, float64(timelineTop+i*panelDistance))
	}
	text(&b, timelineWidth/2, float64(height-6), "middle", plotText, 13, t.X)
	b.WriteString("</svg>\n")
	return b.String()
}

// panel draws axes and lines.
func (t *Timeline) panel(b *strings.Builder, p Panel, top float64) {
	bottom := top + panelHeight
	text(b, timelineLeft, top-8, "start", plotText, 13, p.Title)
	for i := range 3 {
		y := bottom - float64(i)*panelHeight/2
		fmt.Fprintf(b, "<line x1='%d' x2='%d' y1='%.1f' y2='%.1f' stroke='%s'/>\n", timelineLeft, timelineWidth-timelineRight, y, y, plotGrid)
		text(b, timelineLeft-8, y+4, "end", plotText, 12, fmt.Sprintf("%g", p.Most*float64(i)/2))
	}
	for s := t.Begin; s <= t.Begin+t.seconds(); s++ {
		if s%5 == 0 {
			text(b, t.across(s), bottom+18, "middle", plotText, 12, fmt.Sprint(s))
		}
	}
	fmt.Fprintf(b, "<line x1='%.1[1]f' x2='%.1[1]f' y1='%.1[2]f' y2='%.1[3]f' stroke='%[4]s' stroke-dasharray='4'/>\n",
		t.across(0), top, bottom, plotMute)
	for i, line := range p.Lines {
		t.line(b, plotColors()[i], p.Most, bottom, line)
	}
}

// line draws values in the middle of their seconds.
func (t *Timeline) line(b *strings.Builder, color string, most, bottom float64, values []float64) {
	half := (t.across(1) - t.across(0)) / 2
	var points []string
	for i, v := range values {
		points = append(points, fmt.Sprintf("%.1f,%.1f", t.across(t.Begin+i)+half, bottom-min(v/most, 1)*panelHeight))
	}
	fmt.Fprintf(b, "<polyline points='%s' fill='none' stroke='%s' stroke-width='2'/>\n", strings.Join(points, " "), color)
}
