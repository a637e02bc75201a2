//go:build e2e

package chaos

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// fault is something that goes wrong.
type fault struct {
	name   string
	weight int  // how often it is drawn, among all
	alone  bool // no other fault comes with it
	api    bool // it needs an API server
	files  bool // it needs a folder of manifests
	// begin makes it happen, and returns a function that ends it, or nil.
	begin func(b *bed, r *rand.Rand) (end func() error, err error)
}

// pause waits for a random time.
func pause(r *rand.Rand, longest time.Duration) { time.Sleep(time.Duration(r.Int64N(int64(longest)))) }

// selectedFaults lists the faults that the flags select.
func selectedFaults() []fault {
	all := slices.Concat(daemonFaults(), outsideFaults(), objectFaults(), healthFaults(), editFaults())
	return slices.DeleteFunc(all, func(f fault) bool {
		contained := func(word string) bool { return strings.Contains(f.name, word) }
		return f.name == otherVersion && *others == "" || f.api && *manifests || f.files && !*manifests ||
			!slices.ContainsFunc(strings.Split(*only, ","), contained)
	})
}

// draw chooses one to three different faults.
func draw(faults []fault, r *rand.Rand) (drawn []*fault) {
	total := 0
	for i := range faults {
		total += faults[i].weight
	}
	for range 1 + r.IntN(3) {
		f := &faults[0]
		for i, at := 0, r.IntN(total); at >= 0; i++ {
			f = &faults[i]
			at -= f.weight
		}
		if f.alone {
			return []*fault{f}
		}
		if !slices.Contains(drawn, f) {
			drawn = append(drawn, f)
		}
	}
	return drawn
}
