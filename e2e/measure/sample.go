package measure

import (
	"slices"
	"time"
)

// Sample is a list of measurements of the same thing.
type Sample []time.Duration

// Quantile is the smallest measurement that is not below the share q of all measurements. Without measurements it is 0.
func (s Sample) Quantile(q float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(s))
	at := int(q*float64(len(s))+0.999999) - 1
	return sorted[min(max(at, 0), len(s)-1)]
}

// Median is the 0.5 quantile.
func (s Sample) Median() time.Duration { return s.Quantile(0.5) }

// Figures are the metrics of a benchmark, by unit. Units follow the rules of benchstat, which knows "ns" and "B". Words before
// "ns" say what was measured.
type Figures map[string]float64

// Report adds the median and the slowest of a hundred.
func (s Sample) Report(f Figures, what string) {
	f[what+"p50-ns"], f[what+"p99-ns"] = float64(s.Median()), float64(s.Quantile(0.99))
}

// Milliseconds is a duration as a number of milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// MedianOf is the median of numbers. For an even count it is the lower of the two in the middle.
func MedianOf(list []float64) float64 {
	if len(list) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(list))[(len(list)-1)/2]
}
