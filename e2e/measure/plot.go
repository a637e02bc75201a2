package measure

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Plot is a chart of lines over logarithmic axes.
type Plot struct {
	Title, Subtitle string
	X, Y            string // labels of the axes
	// Groups are names on the X axis in the place of numbers; points count them from 0.
	Groups []string
	Lines  []Line
}

// Line is a series of points with a name. The points go from left to right.
type Line struct {
	Name   string
	Points plotter.XYs
}

// Point is one measurement. Both numbers are above 0.
type Point = plotter.XY

// SVG draws the plot. It has its own background and is readable on a dark page, too.
func (p *Plot) SVG() string {
	chart := newChart(p.Title+"\n"+p.Subtitle, p.X)
	chart.Y.Label.Text = p.Y
	for i, l := range p.Lines {
		if len(l.Points) > 0 {
			labels := plotter.XYLabels{XYs: l.Points}
			for _, at := range l.Points {
				labels.Labels = append(labels.Labels, Short(at.Y))
			}
			line, noLine := plotter.NewLine(l.Points)
			values, noValues := plotter.NewLabels(labels)
			if err := errors.Join(noLine, noValues); err != nil {
				panic(err) // a measurement is no number
			}
			line.Color, line.Width = lineColor(i), vg.Points(2)
			chart.Add(line, values)
			chart.Legend.Add(l.Name, line)
		}
	}
	axes := []*plot.Axis{&chart.X, &chart.Y}
	if p.Groups != nil {
		chart.NominalX(p.Groups...)
		axes = axes[1:]
	}
	for _, axis := range axes {
		if axis.Min <= axis.Max { // there are points
			axis.Min, axis.Max, axis.AutoRescale = math.Pow10(int(math.Floor(math.Log10(axis.Min)))), axis.Max*1.1, true
			axis.Scale, axis.Tick.Marker = plot.LogScale{}, decades{}
		}
	}
	canvas := vgsvg.New(645, 360)
	chart.Draw(draw.Crop(draw.New(canvas), 5, -25, 5, -5))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return fmt.Sprint(err) // a buffer takes everything
	}
	return b.String()
}

// decades marks powers of ten.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) []plot.Tick {
	list := plot.LogTicks{}.Ticks(low, high)
	for i, t := range list {
		if t.Label != "" && t.Value >= 1 {
			list[i].Label = Count(int(t.Value + 0.5))
		}
	}
	return list
}

// newChart returns a chart with a grid, in a font that browsers replace by their own.
func newChart(title, x string) *plot.Plot {
	chart := plot.New()
	chart.Title.Text, chart.X.Label.Text, chart.Legend.Top = title, x, true
	chart.Legend.Left = true // its text cannot cover its lines, whatever font a browser takes
	for _, f := range []*font.Font{
		&chart.Title.TextStyle.Font, &chart.X.Label.TextStyle.Font, &chart.Y.Label.TextStyle.Font,
		&chart.X.Tick.Label.Font, &chart.Y.Tick.Label.Font, &chart.Legend.TextStyle.Font,
	} {
		f.Variant = "Sans"
	}
	chart.Add(plotter.NewGrid())
	return chart
}

// lineColor is a color that color-blind readers can distinguish from the others, also on paper.
func lineColor(i int) color.Color {
	list := [][3]uint8{{0x09, 0x69, 0xda}, {0xbc, 0x4c, 0}, {0x82, 0x50, 0xdf}, {0x1a, 0x7f, 0x37}, {0x9a, 0x67, 0}, {0x57, 0x60, 0x6a}}
	c := list[i%len(list)]
	return color.RGBA{R: c[0], G: c[1], B: c[2], A: 255}
}
