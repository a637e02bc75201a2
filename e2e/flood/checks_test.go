//go:build e2e

package flood

import (
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/e2e/daemon"
)

// mostCheckFlows is how many flows checks may have in the table of connections.
const mostCheckFlows = 1000

// TestChecksLeaveNoFlows: a tenant asks for 10,000 checks a second that end in every way. They have few flows at any time, and
// none of them is left when the tenant takes his Services back.
func TestChecksLeaveNoFlows(t *testing.T) {
	b := newBedWithout(t)
	f := b.newFarm(t)
	b.server.put(others()...)
	b.server.put(mixedChecks(1000)...)
	b.start(t)
	most := b.mostFlows(t, func() { time.Sleep(6 * time.Second) })
	if most > mostCheckFlows {
		t.Errorf("the table of connections had %d flows, want at most %d", most, mostCheckFlows)
	}
	if most < 10 {
		t.Errorf("the table of connections had %d flows: is nobody asked?", most)
	}
	if len(f.pauses(time.Time{})) == 0 {
		t.Error("the endpoint of another tenant was not asked twice")
	}
	for _, o := range mixedChecks(0) {
		o.SetAnnotations(nil)
		b.server.put(o)
	}
	svc := others()[0]
	svc.SetAnnotations(nil)
	b.server.put(svc)
	b.daemon.WaitFor(t, "end of the checks", func(s *socket.Status) bool { return s.WaitingServices == 0 })
	for end := time.Now().Add(daemon.Patience); b.farmFlows(t) > 0; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d flows of checks are left", b.farmFlows(t))
		}
	}
}
