//go:build e2e

package deadnode

import (
	"fmt"
	"time"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

const mostLatency = 6 // seconds

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
	failures := measure.Panel{
		Title: fmt.Sprintf("failed connections a second, of %d (patience: 5 s)", *rate), Most: float64(*rate) / 2,
	}
	latency := measure.Panel{Title: "slowest connection of each second that did not fail, in seconds", Most: mostLatency}
	t := measure.Timeline{
		Title: "A node vanishes with 3 of 10 endpoints; the EndpointSlices do not change",
		X:     "seconds after the node vanished", Begin: -int(calm / time.Second),
	}
	for i := range runs {
		var failed, slowest []float64
		for _, s := range runs[i].seconds() {
			failed, slowest = append(failed, float64(s.failed)), append(slowest, s.slowest.Seconds())
		}
		t.Names = append(t.Names, runs[i].name)
		failures.Lines, latency.Lines = append(failures.Lines, failed), append(latency.Lines, slowest)
	}
	t.Panels = []measure.Panel{failures, latency}
	return t.SVG()
}
