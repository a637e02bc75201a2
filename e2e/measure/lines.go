package measure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"golang.org/x/perf/benchfmt"
)

// Figures are the values of one measurement, by unit. Units follow the rules of benchstat, which knows "ns" and "B".
type Figures map[string]float64

// Lines are measurements in the format of Go benchmarks. The tables show the median of all lines of a name.
type Lines struct {
	list    []*benchfmt.Result
	missing []error
}

// Add appends a measurement. A name is that of a benchmark without "Benchmark", such as FirstSync/services=100.
func (l *Lines) Add(name string, iterations int, f Figures) {
	r := &benchfmt.Result{Name: benchfmt.Name(name), Iters: iterations}
	for _, unit := range slices.Sorted(maps.Keys(f)) {
		r.Values = append(r.Values, benchfmt.Value{Value: f[unit], Unit: unit})
	}
	l.list = append(l.list, r)
}

// Read adds the lines of a text, such as a saved file or the output of a child process.
func (l *Lines) Read(text []byte) error {
	for r := benchfmt.NewReader(bytes.NewReader(text), "the measurements"); r.Scan(); {
		switch record := r.Result().(type) {
		case *benchfmt.Result:
			l.list = append(l.list, record.Clone())
		case *benchfmt.SyntaxError:
			return fmt.Errorf("read the measurements: %w", record)
		}
	}
	return nil
}

// Write writes all lines and the machine. benchstat does not mix the lines of different machines.
func (l *Lines) Write(w io.Writer, m Machine) error {
	setting := func(key, value string) benchfmt.Config {
		return benchfmt.Config{Key: key, Value: []byte(value), File: true}
	}
	out := benchfmt.NewWriter(w)
	for _, line := range l.list {
		line.Config = []benchfmt.Config{setting("cpu", m.CPU), setting("kernel", m.Kernel), setting("go", m.Go)}
		if err := out.Write(line); err != nil {
			return fmt.Errorf("write the measurements: %w", err)
		}
	}
	return nil
}

// Median returns the median of a unit over all lines of a name.
func (l *Lines) Median(name, unit string) float64 {
	var values []float64
	for _, line := range l.list {
		if line.Name.String() != name {
			continue
		}
		for _, v := range line.Values {
			switch {
			case v.OrigUnit == unit: // the reader changed the unit, such as ns to sec
				values = append(values, v.OrigValue)
			case v.Unit == unit:
				values = append(values, v.Value)
			}
		}
	}
	if len(values) == 0 {
		l.missing = append(l.missing, fmt.Errorf("nothing has measured %s in %s", unit, name))
	}
	return MedianOf(values)
}

// Milliseconds returns the median of a unit in nanoseconds.
func (l *Lines) Milliseconds(name, unit string) float64 { return l.Median(name, unit) / 1e6 }

// Count returns the median of a unit as a whole number.
func (l *Lines) Count(name, unit string) int { return int(l.Median(name, unit)) }

// Quantiles shows the median and the slowest of a hundred, in milliseconds.
func (l *Lines) Quantiles(name string) string {
	return Short(l.Milliseconds(name, "p50-ns")) + " / " + Short(l.Milliseconds(name, "p99-ns"))
}

// Has reports whether something was measured under a name.
func (l *Lines) Has(name string) bool { return l.Iterations(name) > 0 }

// Iterations returns how often something was measured, over all lines of a name.
func (l *Lines) Iterations(name string) (n int) {
	for _, line := range l.list {
		if line.Name.String() == name {
			n += line.Iters
		}
	}
	return n
}

// Err reports figures that a table needs and nothing has measured.
func (l *Lines) Err() error { return errors.Join(l.missing...) }

// Save writes all lines into a file for benchstat. An empty name saves nothing.
func (l *Lines) Save(file string, m Machine) error {
	if file == "" {
		return nil
	}
	f, err := os.Create(file)
	if err != nil {
		return fmt.Errorf("save the measurements: %w", err)
	}
	return errors.Join(l.Write(f, m), f.Close())
}
