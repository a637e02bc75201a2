package main

import (
	"math/rand/v2"
	"slices"
	"strings"
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

// faultsOf lists the faults that the flags select.
func faultsOf(o *options) []fault {
	all := slices.Concat(daemonFaults(), outsideFaults(), objectFaults(), healthFaults(), editFaults())
	return slices.DeleteFunc(all, func(f fault) bool {
		contained := func(word string) bool { return strings.Contains(f.name, word) }
		return f.name == otherVersion && len(o.others) == 0 || f.api && o.manifests || f.files && !o.manifests || !slices.ContainsFunc(strings.Split(o.only, ","), contained)
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
