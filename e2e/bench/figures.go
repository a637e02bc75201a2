package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/perf/benchfmt"
	"golang.org/x/perf/benchmath"

	"github.com/verdict-proxy/verdict/e2e/measure"
)

// figures collect the lines of Go benchmarks, and give the median of all lines of a name.
type figures struct {
	lines   []*benchfmt.Result
	missing []error
}

// read adds the output of a child process.
func (f *figures) read(text []byte, m measure.Machine) error {
	for r := benchfmt.NewReader(bytes.NewReader(text), "a child process"); r.Scan(); {
		switch record := r.Result().(type) {
		case *benchfmt.Result:
			line := record.Clone()
			f.lines = append(f.lines, &benchfmt.Result{
				Config: machineConfig(m), Name: line.Name, Iters: line.Iters, Values: line.Values,
			})
		case *benchfmt.SyntaxError:
			return fmt.Errorf("read the measurements: %w", record)
		}
	}
	return nil
}

// machineConfig describes the machine to benchstat, which does not mix the lines of different machines.
func machineConfig(m measure.Machine) []benchfmt.Config {
	line := func(key, value string) benchfmt.Config {
		return benchfmt.Config{Key: key, Value: []byte(value), File: true}
	}
	return []benchfmt.Config{line("cpu", m.CPU), line("kernel", m.Kernel), line("go", m.Go)}
}

// write writes all lines for benchstat.
func (f *figures) write(w io.Writer) error {
	out := benchfmt.NewWriter(w)
	for _, line := range f.lines {
		if err := out.Write(line); err != nil {
			return fmt.Errorf("write the measurements: %w", err)
		}
	}
	return nil
}

// median is the median of a unit over all lines of a name, such as FirstSync/services=100.
func (f *figures) median(name, unit string) float64 {
	var values []float64
	for _, line := range f.lines {
		i := slices.IndexFunc(line.Values, func(v benchfmt.Value) bool { return v.Unit == unit || v.OrigUnit == unit })
		switch {
		case line.Name.String() != name || i < 0:
		case line.Values[i].OrigUnit == unit:
			values = append(values, line.Values[i].OrigValue)
		default:
			values = append(values, line.Values[i].Value)
		}
	}
	if len(values) == 0 {
		f.missing = append(f.missing, fmt.Errorf("nothing has measured %s in %s", name, unit))
		return 0
	}
	return benchmath.AssumeNothing.Summary(benchmath.NewSample(values, &benchmath.DefaultThresholds), 0.95).Center
}

// milliseconds is the median of a unit in nanoseconds.
func (f *figures) milliseconds(name, unit string) float64 { return f.median(name, unit) / 1e6 }

func (f *figures) count(name, unit string) int { return int(f.median(name, unit)) }

// iterations is how often something was measured, over all lines of a name.
func (f *figures) iterations(name string) (n int) {
	for _, line := range f.lines {
		if line.Name.String() == name {
			n += line.Iters
		}
	}
	return n
}

// err reports figures that were asked for and not measured.
func (f *figures) err() error { return errors.Join(f.missing...) }
