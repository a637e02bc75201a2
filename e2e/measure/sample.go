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

// Mean is the arithmetic mean.
func (s Sample) Mean() time.Duration {
	if len(s) == 0 {
		return 0
	}
	var sum time.Duration
	for _, d := range s {
		sum += d
	}
	return sum / time.Duration(len(s))
}

// Figures returns the median and the slowest of a hundred.
func (s Sample) Figures() Figures {
	return Figures{"p50-ns": float64(s.Median()), "p99-ns": float64(s.Quantile(0.99))}
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
