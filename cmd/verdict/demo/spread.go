package demo

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// implausible is the p value below which a spread counts as uneven. With a fair pick, that happens once in a billion times,
// so the demo does not fail by chance. A pod that gets twice its share is still found.
const implausible = 1e-9

// evenness returns the p value of a chi-square test: the probability that a fair pick spreads at least as unevenly.
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

// chiSquareTail returns the probability that a chi-square variable exceeds x. That is the regularized upper incomplete
// gamma function Q(degrees/2, x/2). The recursion begins with Q(1/2, y) = erfc(sqrt y) or Q(1, y) = exp(-y).
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

// column holds the connections of one family.
type column struct {
	name string
	hits tally
}

// round is one series of connections in every family.
type round struct {
	columns  []column
	backends []string // the pods that should answer
	gone     []string // the pods that should not
}

// judge returns a sentence about how even the spread is, or an error if the spread is wrong.
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
			return 0, fmt.Errorf("%d %s connections still went to %s, which is no longer an endpoint", n, c.name, name)
		}
	}
	var counts []int
	for _, name := range r.backends {
		counts = append(counts, c.hits[name])
	}
	if others := sum(slices.Collect(maps.Values(c.hits))) - sum(counts); others > 0 {
		return 0, fmt.Errorf("%d %s connections reached a pod that is none of %v", others, c.name, r.backends)
	}
	if p = evenness(counts); p < implausible {
		return p, fmt.Errorf("%s connections are not spread evenly over %v: %v (chi-square p = %.1g)", c.name, r.backends, counts, p)
	}
	return p, nil
}
