package main

import (
	"flag"
	"fmt"
	"maps"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// benchmark is the body of a Go benchmark. It returns its error, because testing.Benchmark hides the messages of
// b.Fatal.
type benchmark func(b *testing.B) error

// runBenchmark runs a Go benchmark with a fixed number of iterations and adds its line.
func runBenchmark(out *measure.Lines, name string, iterations int, body benchmark) error {
	if err := flag.Set("test.benchtime", fmt.Sprintf("%dx", iterations)); err != nil {
		return fmt.Errorf("set the iterations of %s: %w", name, err)
	}
	var failure error
	r := testing.Benchmark(func(b *testing.B) {
		if failure = body(b); failure != nil {
			b.FailNow()
		}
	})
	if failure != nil {
		return fmt.Errorf("%s: %w", name, failure)
	}
	f := measure.Figures{"ns/op": float64(r.T.Nanoseconds()) / float64(r.N)}
	maps.Copy(f, r.Extra)
	out.Add(name, r.N, f)
	return nil
}

// reportFigures hands the figures to a Go benchmark.
func reportFigures(b *testing.B, f measure.Figures) {
	for unit, value := range f {
		b.ReportMetric(value, unit)
	}
}
