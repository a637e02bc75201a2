package demo

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// implausible is the chance below which a spread does not count as even: once in ten thousand, so that the demo is not
// wrong about a proxy that works, and still sees a pod that gets twice its share.
const implausible = 0.0001

// evenness is the p value of a chi-square test: how often a fair pick spreads as unevenly as this, or more so.
func evenness(counts []int) float64 {
	total := sum(counts)
	if total == 0 || len(counts) < 2 {
		return 1
	}
	expected := float64(total) / float64(len(counts))
	chi := 0.0
	for _, n := range counts {
		d := float64(n) - expected
		chi += d * d / expected
	}
	return chiSquareTail(chi, len(counts)-1)
}

func sum(counts []int) int {
	total := 0
	for _, n := range counts {
		total += n
	}
	return total
}

// chiSquareTail is the chance that a chi-square variable exceeds x: the regularized upper incomplete gamma function
// Q(degrees/2, x/2), from Q(1/2, y) = erfc(sqrt y) or Q(1, y) = exp(-y) upwards.
func chiSquareTail(x float64, degrees int) float64 {
	y := x / 2
	a, q := 1.0, math.Exp(-y)
	if degrees%2 == 1 {
		a, q = 0.5, math.Erfc(math.Sqrt(y))
	}
	for ; a < float64(degrees)/2; a++ {
		q += math.Exp(a*math.Log(y) - y - lnGamma(a+1))
	}
	return q
}

func lnGamma(x float64) float64 {
	l, _ := math.Lgamma(x)
	return l
}

// column is what one family's connections did.
type column struct {
	name string
	hits tally
}

// round is one series of connections in every family.
type round struct {
	columns  []column
	backends []string // that should answer
	gone     []string // that should not
}

// judge says in a sentence how even the spread is; the error says what is wrong with it.
func (r *round) judge() (string, error) {
	var said []string
	for i := range r.columns {
		p, err := r.columns[i].judge(r)
		if err != nil {
			return "", err
		}
		said = append(said, fmt.Sprintf("%s p = %.2f", r.columns[i].name, p))
	}
	return "Even within statistical noise: " + strings.Join(said, ", ") + ".", nil
}

func (c *column) judge(r *round) (p float64, err error) {
	for _, name := range r.gone {
		if n := c.hits[name]; n > 0 {
			return 0, fmt.Errorf("%d %s connections still went to %s, which is no endpoint any more", n, c.name, name)
		}
	}
	var counts []int
	for _, name := range r.backends {
		counts = append(counts, c.hits[name])
	}
	if others := sum(slices.Collect(maps.Values(c.hits))) - sum(counts); others > 0 {
		return 0, fmt.Errorf("%d %s connections were answered by none of %v", others, c.name, r.backends)
	}
	if p = evenness(counts); p < implausible {
		return p, fmt.Errorf("%s connections are not spread evenly over %v: %v (chi-square p = %.1g)", c.name, r.backends, counts, p)
	}
	return p, nil
}
