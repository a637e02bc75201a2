package proxier

import (
	"fmt"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestTenantLeavesRoomForSlowStarts: a tenant with thousands of Services does not keep others from a slow start.
func TestTenantLeavesRoomForSlowStarts(t *testing.T) {
	s, now := newSlowStarts(), time.Now()
	for i := range 2 * maxSlow {
		s.begin(state.Name{Namespace: "tenant", Name: fmt.Sprint(i)}, deadEndpoint, time.Minute, now)
	}
	web := state.Name{Namespace: "shop", Name: "web"}
	if s.begin(web, deadEndpoint, time.Minute, now); s.of[web] == nil {
		t.Errorf("%d Services of one namespace are in slow start, and there is no room for another one", len(s.of))
	}
}
