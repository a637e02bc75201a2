package measure

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
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

// SVG draws the timeline. It has its own background and is readable on a dark page, too.
func (t *Timeline) SVG() string {
	var charts []*plot.Plot
	for _, p := range t.Panels {
		chart := newChart(p.Title, t.X)
		if len(charts) == 0 {
			chart.Title.Text = t.Title + "\n" + p.Title
		}
		for i, values := range p.Lines {
			addLine(chart, i, t.Names[i], t.points(values, p.Most))
		}
		chart.X.Min, chart.Y.Min, chart.Y.Max = float64(t.Begin), 0, p.Most
		event, err := plotter.NewLine(plotter.XYs{{Y: 0}, {Y: p.Most}})
		if err != nil {
			panic(err) // the numbers are these
		}
		event.Dashes = []vg.Length{4, 4}
		chart.Add(event)
		charts = append(charts, chart)
	}
	return picture(40+170*len(charts), charts...)
}

// points are values in the middle of their seconds, and at most at the upper end of the axis.
func (t *Timeline) points(values []float64, most float64) (list plotter.XYs) {
	for i, v := range values {
		list = append(list, plotter.XY{X: float64(t.Begin+i) + 0.5, Y: min(v, most)})
	}
	return list
}
