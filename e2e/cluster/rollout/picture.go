package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// before is how many seconds of the picture are before the rolling updates.
const before = 3

// slowestShown is the upper end of the axis of latency, in seconds.
const slowestShown = 4

// Picture adds all rolling updates up, second by second since each began.
func Picture(title string, runs []*Run) string {
	updates, seconds := 0, before
	for _, r := range runs {
		updates = max(updates, len(r.Updates))
		for _, s := range r.Updates {
			seconds = max(seconds, before+int(s.Ended.Sub(s.Began)/time.Second)+1)
		}
	}
	lost := measure.Panel{Title: fmt.Sprintf("failed connections, in each second of %d updates together", updates)}
	slowest := measure.Panel{Title: "slowest connection of each second that did not fail, in seconds", Most: slowestShown}
	t := measure.Timeline{Title: title, X: "seconds after an update began", Begin: -before}
	for _, r := range runs {
		l, s := r.seconds(seconds)
		t.Names = append(t.Names, r.Proxy)
		lost.Lines, slowest.Lines = append(lost.Lines, l), append(slowest.Lines, s)
		lost.Most = max(lost.Most, round(slices.Max(l)))
	}
	t.Panels = []measure.Panel{lost, slowest}
	return t.SVG()
}

// round returns the next number that is good for an axis.
func round(most float64) float64 {
	for power := 2.0; ; power *= 10 {
		for _, n := range []float64{1, 2, 5} {
			if n*power >= most {
				return n * power
			}
		}
	}
}

// seconds counts, for each second of all rolling updates, the connections that the proxy lost, and finds the slowest one
// that was answered.
func (r *Run) seconds(n int) (lost, slowest []float64) {
	lost, slowest = make([]float64, n), make([]float64, n)
	for _, w := range r.Ways {
		for _, a := range w.Attempts {
			number, since := r.update(a.Began.Add(before * time.Second))
			i := int(since / time.Second)
			switch {
			case number == 0 || i >= n:
			case a.Lost():
				lost[i]++
			case a.Outcome == rate.Answered:
				slowest[i] = max(slowest[i], a.Took.Seconds())
			}
		}
	}
	return lost, slowest
}
