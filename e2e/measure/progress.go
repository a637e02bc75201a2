package measure

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Progress writes what a long program is doing, with the seconds since its start.
type Progress struct {
	Out   io.Writer
	Start time.Time
}

// Stage begins a stage.
func (p *Progress) Stage(format string, args ...any) {
	fmt.Fprintf(p.Out, "%6s  %s\n", time.Since(p.Start).Truncate(time.Second), fmt.Sprintf(format, args...))
}

// Sizes is a flag: numbers of Services in ascending order, separated by commas.
type Sizes []int

// maxServices is the number of cluster IPs that the benchmarks give away.
const maxServices = 1_000_000

// Set implements flag.Value.
func (s *Sizes) Set(text string) error {
	*s = nil
	for word := range strings.SplitSeq(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 2 || n > maxServices {
			return fmt.Errorf("%q is not a number from 2 to %d", word, maxServices)
		}
		*s = append(*s, n)
	}
	slices.Sort(*s)
	return nil
}

// String implements flag.Value.
func (s *Sizes) String() string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(*s), " ", ","), "[]")
}
