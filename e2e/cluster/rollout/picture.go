package rollout

import (
	"fmt"
	"slices"
	"time"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
	"github.com/verdict-proxy/verdict/e2e/measure"
)

// Picture shows failures and latency, second by second since an event: the beginning of an update.
type Picture struct {
	Title  string
	Event  string        // what happens at second 0
	Before time.Duration // the picture begins that long before it
	Failed string        // the title of the failures
	// MostFailed is the upper end of their axis; 0: that of the highest value. Slowest is that of latency, in seconds.
	MostFailed, Slowest float64
	// IsFailed reports whether a connection failed.
	IsFailed func(*rate.Attempt) bool
}

// OfUpdates is the picture of rolling updates.
func OfUpdates(title string, runs []*Run) *Picture {
	updates := 0
	for _, r := range runs {
		updates = max(updates, len(r.Updates))
	}
	return &Picture{
		Title: title, Event: "an update began", Before: before, Slowest: 4, IsFailed: (*rate.Attempt).Lost,
		Failed: fmt.Sprintf("failed connections, in each second of %d updates together", updates),
	}
}

// before is how much of the picture is before rolling updates.
const before = 3 * time.Second

// Draw adds all updates up.
func (p *Picture) Draw(runs []*Run) string {
	seconds := 0
	for _, r := range runs {
		for _, s := range r.Updates {
			seconds = max(seconds, int((p.Before+s.Ended.Sub(s.Began))/time.Second)+1)
		}
	}
	lost := measure.Panel{Title: p.Failed, Most: p.MostFailed}
	slowest := measure.Panel{Title: "slowest connection of each second that did not fail, in seconds", Most: p.Slowest}
	t := measure.Timeline{Title: p.Title, X: "seconds after " + p.Event, Begin: -int(p.Before / time.Second)}
	for _, r := range runs {
		l, s := p.seconds(r, seconds)
		t.Names = append(t.Names, r.Proxy)
		lost.Lines, slowest.Lines = append(lost.Lines, l), append(slowest.Lines, s)
		if p.MostFailed == 0 {
			lost.Most = max(lost.Most, 2, slices.Max(l))
		}
	}
	t.Panels = []measure.Panel{lost, slowest}
	return t.SVG()
}

// seconds counts, for each second of all rolling updates, the connections that failed, and finds the slowest one
// that was answered.
func (p *Picture) seconds(r *Run, n int) (lost, slowest []float64) {
	lost, slowest = make([]float64, n), make([]float64, n)
	for _, w := range r.Ways {
		for _, a := range w.Attempts {
			number, since := r.update(a.Began.Add(p.Before))
			i := int(since / time.Second)
			switch {
			case number == 0 || i >= n:
			case p.IsFailed(&a):
				lost[i]++
			case a.Outcome == rate.Answered:
				slowest[i] = max(slowest[i], a.Took.Seconds())
			}
		}
	}
	return lost, slowest
}
