//go:build ipvs

package fleet

import "testing"

// TestSyncDaemon is TestPairs with keepalived alone: IPVS balances, and the kernel sends its connections to the other box. It sends
// about 40 of them at a time, or what it has after two seconds, so the last ones may be lost.
func TestSyncDaemon(t *testing.T) { pairDies(t, "", 0, 80) }
