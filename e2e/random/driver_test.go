//go:build e2e

package random

import (
	"flag"
	"testing"
	"time"
)

var duration = flag.Duration("time", 20*time.Second, "how long to make random changes")

// TestRandomChanges makes random changes for a time, with the default backend.
func TestRandomChanges(t *testing.T) {
	end := time.Now().Add(*duration)
	run(t, "", func(int) bool { return time.Now().Before(end) })
}

// TestWithoutIPv6: see noIPv6.
func TestWithoutIPv6(t *testing.T) { noIPv6(t, "") }
