package conntrack

import (
	"slices"
	"testing"
)

// TestFlowsOfNewerRules: during a cleaning for a Service without endpoints, the Service gets its first one, and clients
// connect. Their flows must stay. The next cleaning deletes the flows that are stale.
func TestFlowsOfNewerRules(t *testing.T) {
	const frontends = "10.96.0.10:53 *4:30053"
	tracker := NewTracker()
	tracker.Set(name("web"), service(frontends+">"))
	tracker.Set(name("other"), service("10.96.0.11:53>"))
	s := tracker.all()
	tracker.Set(name("web"), service(frontends+">10.0.0.1:53")) // and the kernel gets its rules

	table := &fakeTable{entries: []entry{
		fakeEntry("new", "10.96.0.10:53 10.0.0.1:53", true),
		fakeEntry("new over the node port", "192.168.0.1:30053 10.0.0.1:53", true),
		fakeEntry("old", "10.96.0.10:53 10.0.0.9:53", true),
		fakeEntry("of another Service", "10.96.0.11:53 10.0.0.1:53", true),
	}}
	c := &Cleaner{table: table}
	for _, want := range [][]string{{"of another Service"}, {"old"}} {
		table.removed = nil
		if _, err := c.Clean(s, nodePortAddrs); err != nil {
			t.Fatal(err)
		}
		slices.Sort(table.removed)
		if !slices.Equal(slices.Compact(table.removed), want) {
			t.Errorf("removed %q, want %q", table.removed, want)
		}
		tracker.Done()
		s = tracker.all()
	}
	if !s.Empty() {
		t.Error("there is still something to clean")
	}
}
