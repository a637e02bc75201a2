//go:build ipvs

package random

import (
	"flag"
	"testing"
)

var rounds = flag.Int("rounds", 5, "how many steps of random changes there are for each backend")

// TestChangesWithIPVS makes random changes while IPVS serves some Services, or all.
func TestChangesWithIPVS(t *testing.T) {
	for _, backend := range []string{"hybrid", "ipvs"} {
		t.Run(backend, func(t *testing.T) { run(t, backend, func(steps int) bool { return steps < *rounds }) })
	}
}

// TestIPVSWithoutIPv6: see noIPv6.
func TestIPVSWithoutIPv6(t *testing.T) { noIPv6(t, "ipvs") }
