// Package exposition describes the metrics in the answer of a /metrics endpoint: names, types, labels and buckets,
// without values. Tests compare Verdict's metrics with those of upstream kube-proxy.
package exposition

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Metric describes one metric.
type Metric struct {
	Name    string
	Type    string   // counter, gauge, histogram, ...
	Labels  []string // sorted
	Buckets []string // of a histogram, without +Inf
}

// String is the line of a metric in a file of Metrics.
func (m Metric) String() string {
	text := m.Name + " " + m.Type + " {" + strings.Join(m.Labels, ",") + "}"
	if len(m.Buckets) > 0 {
		text += " " + strings.Join(m.Buckets, ",")
	}
	return text
}

// Read reads the text format of Prometheus. The result is sorted by name.
func Read(r io.Reader) ([]Metric, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(r)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	list := make([]Metric, 0, len(families))
	for _, name := range slices.Sorted(maps.Keys(families)) {
		list = append(list, describe(families[name]))
	}
	return list, nil
}

// describe takes labels and buckets from the first series. All series of a metric have the same.
func describe(f *dto.MetricFamily) Metric {
	m := Metric{Name: f.GetName(), Type: strings.ToLower(f.GetType().String())}
	if len(f.GetMetric()) == 0 {
		return m
	}
	first := f.GetMetric()[0]
	for _, l := range first.GetLabel() {
		m.Labels = append(m.Labels, l.GetName())
	}
	slices.Sort(m.Labels)
	for _, b := range first.GetHistogram().GetBucket() {
		if text := strconv.FormatFloat(b.GetUpperBound(), 'g', -1, 64); text != "+Inf" {
			m.Buckets = append(m.Buckets, text)
		}
	}
	return m
}

// Recorded reads files of Metrics, one a line. Lines that begin with # are comments. It returns the lines of a prefix by
// the name of the metric.
func Recorded(prefix string, files ...string) (map[string]string, error) {
	lines := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read recorded metrics: %w", err)
		}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			if name, _, ok := strings.Cut(line, " "); ok && name != "#" && strings.HasPrefix(name, prefix) {
				lines[name] = line
			}
		}
	}
	return lines, nil
}

// Compare lists what differs between metrics that are there and those that should be. Without says why one need not be
// there.
func Compare(have []Metric, want, without map[string]string) (differences []string) {
	seen := map[string]bool{}
	for _, m := range have {
		seen[m.Name] = true
		if line, ok := want[m.Name]; ok && line != m.String() {
			differences = append(differences, fmt.Sprintf("%s differs: there is\n%s\nwanted is\n%s", m.Name, m, line))
		}
		if why := without[m.Name]; why != "" {
			differences = append(differences, fmt.Sprintf("%s is there, although %s", m.Name, why))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !seen[name] && without[name] == "" {
			differences = append(differences, name+" is missing")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(without)) {
		if want[name] == "" {
			differences = append(differences, name+" is unknown, so it needs no reason")
		}
	}
	return differences
}
