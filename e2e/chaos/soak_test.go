//go:build e2e

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

const (
	soakPeriod = 5 * time.Second // between two samples
	soakParts  = 5
)

// quantity is something of the daemon's process that must not grow. Its kind decides how much noise is allowed.
type quantity struct {
	name, metric string
	unit         float64
	slack        float64 // of the first measured part
}

func quantities() []quantity {
	return []quantity{
		{"resident memory, MiB", "process_resident_memory_bytes", 1 << 20, 1.10},
		{"heap in use, MiB", "go_memstats_heap_inuse_bytes", 1 << 20, 1.25},
		{"goroutines", "go_goroutines", 1, 1.05},
		{"open descriptors", "process_open_fds", 1, 1.05},
	}
}

// soak runs the daemon for a time under churn, hostile objects and edits, without a restart, and compares what its
// process holds in the second and the last fifth of that time. In the first fifth, caches fill.
func (g *game) soak() error {
	samples := map[string][]float64{}
	r := rand.New(rand.NewPCG(*seed, 1))
	edits := editFaults()
	end := time.Now().Add(*soak)
	for time.Now().Before(end) {
		if g.plane != nil {
			g.churn.attack(r)
		}
		f := &edits[r.IntN(len(edits))]
		g.count[f.name]++
		if _, err := f.begin(g.bed, r); err != nil {
			return fmt.Errorf("begin the fault %q: %w", f.name, err)
		}
		if err := g.sample(samples); err != nil {
			return err
		}
		time.Sleep(soakPeriod)
	}
	if err := errors.Join(g.settle(), g.ledger.judge()); err != nil {
		return err
	}
	return g.flat(samples)
}

// sample reads the daemon's metrics once.
func (g *game) sample(to map[string][]float64) error {
	ctx, cancel := context.WithTimeout(g.Context(), settlePatience)
	defer cancel()
	page, err := g.world.Node.Get(ctx, "http://127.0.0.1:10249/metrics")
	if err != nil {
		return fmt.Errorf("read the daemon's metrics: %w", err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page.Body))
	if err != nil {
		return fmt.Errorf("read the daemon's metrics: %w", err)
	}
	for _, q := range quantities() {
		f := families[q.metric]
		if f == nil || len(f.GetMetric()) == 0 {
			return fmt.Errorf("the daemon has no metric %s", q.metric)
		}
		to[q.name] = append(to[q.name], f.GetMetric()[0].GetGauge().GetValue()/q.unit)
	}
	return nil
}

// flat prints the medians of the parts, and reports what has grown.
func (g *game) flat(samples map[string][]float64) error {
	t := &measure.Table{Head: []string{"median of each fifth", "1", "2", "3", "4", "5"}}
	var grown []string
	for _, q := range quantities() {
		list, row := samples[q.name], []string{q.name}
		if len(list) < soakParts {
			return fmt.Errorf("only %d samples in %s: let it run longer", len(list), *soak)
		}
		var medians []float64
		for part := range soakParts {
			medians = append(medians, measure.MedianOf(list[part*len(list)/soakParts:(part+1)*len(list)/soakParts]))
			row = append(row, fmt.Sprintf("%.1f", medians[part]))
		}
		if last := medians[soakParts-1]; last > medians[1]*q.slack+1 {
			grown = append(grown, fmt.Sprintf("%s from %.1f to %.1f", q.name, medians[1], last))
		}
		t.Add(row...)
	}
	g.Logf("%d samples in %s\n\n%s", len(samples[quantities()[0].name]), *soak, t)
	if len(grown) > 0 {
		return fmt.Errorf("the daemon grows: %s", strings.Join(grown, ", "))
	}
	return nil
}
