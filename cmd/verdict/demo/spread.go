package demo

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// uneven is how many standard deviations the part of a pod may differ from its share. With a fair pick, more than that
// happens less than once in a billion times, so the demo does not fail by chance. A pod that gets twice its share is found.
const uneven = 6.5

// judge returns an error if connections of a family are not spread evenly over some pods, or reached another one.
func judge(family string, hits tally, pods []string) error {
	var counts []int
	total := 0
	for name, n := range hits {
		if !slices.Contains(pods, name) {
			return fmt.Errorf("%d %s connections went to %q, which is none of the endpoints %v", n, family, name, pods)
		}
		total += n
	}
	share := 1 / float64(len(pods))
	expected, deviation := float64(total)*share, math.Sqrt(float64(total)*share*(1-share))
	even := true
	for _, name := range pods {
		counts = append(counts, hits[name])
		even = even && math.Abs(float64(hits[name])-expected) <= uneven*deviation
	}
	if !even {
		return fmt.Errorf("%s connections are not spread evenly over %v: %v", family, pods, counts)
	}
	return nil
}

// barRoom is the length of the longest bar.
const barRoom = 40

// bar returns a bar that fills n/longest of its room. If n is not 0, the bar is visible.
func bar(n, longest int) string {
	filled := n * barRoom / longest
	if n > 0 {
		filled = max(filled, 1)
	}
	return fmt.Sprintf("%-*s", barRoom, strings.Repeat("#", filled))
}
