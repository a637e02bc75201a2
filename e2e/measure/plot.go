package measure

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Plot is a chart of lines over two logarithmic axes.
type Plot struct {
	Title, Subtitle string
	X, Y            string // labels of the axes
	Lines           []Line
}

// Line is a series of points with a name. The points go from left to right.
type Line struct {
	Name   string
	Points []Point
}

// Point is one measurement. Both numbers are above 0.
type Point struct{ X, Y float64 }

// Layout in pixels, and the colors of lines. Color-blind readers can distinguish them, also on paper.
const (
	plotWidth, plotHeight    = 860, 480
	plotLeft, plotRight      = 80, 190
	plotTop, plotBottom      = 80, 60
	plotFont                 = "font-family='system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif'"
	plotGrid, plotText       = "#d8dee4", "#1f2328"
	plotBackground, plotMute = "#ffffff", "#59636e"
)

func plotColors() []string { return []string{"#0969da", "#bc4c00", "#8250df", "#1a7f37"} }

// axis maps numbers to pixels. It spans whole powers of ten.
type axis struct {
	low, high float64 // exponents
	from, to  float64 // pixels
}

func newAxis(values []float64, from, to float64) axis {
	a := axis{low: math.Inf(1), high: math.Inf(-1), from: from, to: to}
	for _, v := range values {
		a.low, a.high = min(a.low, math.Floor(math.Log10(v))), max(a.high, math.Ceil(math.Log10(v)))
	}
	if len(values) == 0 {
		a.low, a.high = 0, 1
	}
	if a.high == a.low {
		a.high++
	}
	return a
}

func (a axis) at(v float64) float64 {
	return a.from + (math.Log10(v)-a.low)/(a.high-a.low)*(a.to-a.from)
}

// decades are the powers of ten on the axis.
func (a axis) decades() []float64 {
	var out []float64
	for e := a.low; e <= a.high; e++ {
		out = append(out, math.Pow(10, e))
	}
	return out
}

// SVG draws the plot. It has its own background and is readable on a dark page, too.
func (p *Plot) SVG() string {
	var xs, ys []float64
	for _, l := range p.Lines {
		for _, pt := range l.Points {
			xs, ys = append(xs, pt.X), append(ys, pt.Y)
		}
	}
	x := newAxis(xs, plotLeft, plotWidth-plotRight)
	y := newAxis(ys, plotHeight-plotBottom, plotTop)
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d' width='%d' height='%d' role='img' %s>\n",
		plotWidth, plotHeight, plotWidth, plotHeight, plotFont)
	fmt.Fprintf(&b, "<title>%s</title>\n<rect width='100%%' height='100%%' fill='%s'/>\n", html.EscapeString(p.Title), plotBackground)
	text(&b, plotLeft, 30, "start", plotText, 17, p.Title)
	text(&b, plotLeft, 52, "start", plotMute, 11, p.Subtitle)
	p.axes(&b, x, y)
	for i, l := range p.Lines {
		l.draw(&b, x, y, plotColors()[i%len(plotColors())])
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p *Plot) axes(b *strings.Builder, x, y axis) {
	line := func(x1, y1, x2, y2 float64) {
		fmt.Fprintf(b, "<line x1='%.1f' y1='%.1f' x2='%.1f' y2='%.1f' stroke='%s'/>\n", x1, y1, x2, y2, plotGrid)
	}
	for _, v := range x.decades() {
		line(x.at(v), y.from, x.at(v), y.to)
		text(b, x.at(v), y.from+20, "middle", plotText, 13, decade(v))
	}
	for _, v := range y.decades() {
		line(x.from, y.at(v), x.to, y.at(v))
		text(b, x.from-8, y.at(v)+4, "end", plotText, 13, decade(v))
	}
	text(b, (x.from+x.to)/2, plotHeight-14, "middle", plotText, 14, p.X)
	middle := (y.from + y.to) / 2
	fmt.Fprintf(b, "<text transform='translate(22 %.1f) rotate(-90)' text-anchor='middle' fill='%s' font-size='14'>%s</text>\n",
		middle, plotText, html.EscapeString(p.Y))
}

// draw draws the line, its points with their values, and its name at the end.
func (l *Line) draw(b *strings.Builder, x, y axis, color string) {
	if len(l.Points) == 0 {
		return
	}
	var path []string
	for _, pt := range l.Points {
		path = append(path, fmt.Sprintf("%.1f,%.1f", x.at(pt.X), y.at(pt.Y)))
	}
	fmt.Fprintf(b, "<polyline points='%s' fill='none' stroke='%s' stroke-width='2.5'/>\n", strings.Join(path, " "), color)
	for _, pt := range l.Points {
		fmt.Fprintf(b, "<circle cx='%.1f' cy='%.1f' r='4' fill='%s'/>\n", x.at(pt.X), y.at(pt.Y), color)
		text(b, x.at(pt.X), y.at(pt.Y)-9, "middle", color, 12, Short(pt.Y))
	}
	last := l.Points[len(l.Points)-1]
	text(b, x.at(last.X)+12, y.at(last.Y)+5, "start", color, 14, l.Name)
}

func decade(v float64) string {
	if v < 1 {
		return fmt.Sprint(v)
	}
	return Count(int(v + 0.5))
}

func text(b *strings.Builder, x, y float64, anchor, color string, size int, content string) {
	fmt.Fprintf(b, "<text x='%.1f' y='%.1f' text-anchor='%s' fill='%s' font-size='%d'>%s</text>\n",
		x, y, anchor, color, size, html.EscapeString(content))
}
