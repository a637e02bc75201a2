package main

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"testing"

	"golang.org/x/perf/benchfmt"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// benchmark is the body of a Go benchmark. It returns its error, because testing.Benchmark hides the messages of
// b.Fatal.
type benchmark func(b *testing.B) error

// measurements are the values of one line, by unit. Units follow the rules of benchstat, which knows "ns" and "B".
type measurements map[string]float64

// report hands the values to a Go benchmark.
func (m measurements) report(b *testing.B) {
	for unit, value := range m {
		b.ReportMetric(value, unit)
	}
}

// output writes measurements in the format of Go benchmarks.
type output struct {
	writer *benchfmt.Writer
	suffix string // of every name, such as services=100
}

func newOutput(w io.Writer, suffix string) *output {
	return &output{writer: benchfmt.NewWriter(w), suffix: suffix}
}

// at is an output with another suffix.
func (o *output) at(suffix string) *output { return &output{writer: o.writer, suffix: suffix} }

// write writes one line.
func (o *output) write(name string, iterations int, m measurements) error {
	r := benchfmt.Result{Name: benchfmt.Name(name + "/" + o.suffix), Iters: iterations}
	for _, unit := range slices.Sorted(maps.Keys(m)) {
		r.Values = append(r.Values, benchfmt.Value{Value: m[unit], Unit: unit})
	}
	if err := o.writer.Write(&r); err != nil {
		return fmt.Errorf("write the measurements of %s: %w", r.Name, err)
	}
	return nil
}

// run runs a Go benchmark with a fixed number of iterations and writes its line.
func (o *output) run(name string, iterations int, body benchmark) error {
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
	m := measurements{"ns/op": float64(r.T.Nanoseconds()) / float64(r.N)}
	maps.Copy(m, r.Extra)
	return o.write(name, r.N, m)
}

// ofSample returns the measurements of a sample.
func ofSample(s measure.Sample) measurements {
	return measurements{"p50-ns": float64(s.Median()), "p99-ns": float64(s.Quantile(0.99))}
}
