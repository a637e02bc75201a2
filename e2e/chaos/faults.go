package main

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// fault is something that goes wrong.
type fault struct {
	name   string
	weight int // how often it is drawn, among all
	// begin makes it happen, and returns a function that ends it, or nil.
	begin func(b *bed, r *rand.Rand) (end func() error, err error)
}

// allFaults lists the faults.
func allFaults() []fault {
	return slices.Concat(daemonFaults(), outsideFaults(), objectFaults(), editFaults())
}

// draw chooses one to three different faults.
func (b *bed) draw(r *rand.Rand) (drawn []*fault) {
	var total int
	for i := range b.faults {
		if b.wanted(&b.faults[i]) {
			total += b.faults[i].weight
		}
	}
	for range 1 + r.IntN(3) {
		at := r.IntN(max(total, 1))
		for i := range b.faults {
			f := &b.faults[i]
			if !b.wanted(f) {
				continue
			}
			if at -= f.weight; at < 0 {
				if !slices.Contains(drawn, f) {
					drawn = append(drawn, f)
				}
				break
			}
		}
	}
	return drawn
}

// wanted reports whether the flags -only and -other select a fault.
func (b *bed) wanted(f *fault) bool {
	if f.name == otherVersion && b.otherBinary == "" {
		return false
	}
	for _, word := range strings.Split(b.options.only, ",") {
		if strings.Contains(f.name, word) {
			return true
		}
	}
	return false
}
