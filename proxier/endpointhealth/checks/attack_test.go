package checks

import (
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestSlowTenantsLeaveSockets: the endpoints of many tenants do not answer, for as long as their checks may wait. That of
// another tenant is asked all the same.
func TestSlowTenantsLeaveSockets(t *testing.T) {
	c, check := steady(), tcpCheck()
	check.Interval, check.Timeout = 10*time.Minute, 10*time.Minute
	for _, namespace := range []string{"a", "b"} {
		c.Set(state.Name{Namespace: namespace, Name: "web"}, check, targets(1000), start)
	}
	open := len(c.Due(start))
	c.Set(web, check, targets(1), start)
	if own := len(c.Due(start)); own != 1 {
		t.Errorf("%d questions are open, and the other tenant is asked %d times", open, own)
	}
}

// TestEndedServicesKeepSockets: a tenant takes his Service away and writes it again while its questions are open. No more of
// them are open than he can have.
func TestEndedServicesKeepSockets(t *testing.T) {
	c, check, open := steady(), tcpCheck(), 0
	for i := range 10 {
		now := start.Add(time.Duration(i) * time.Second)
		c.Set(web, check, targets(1000), now)
		open += len(c.Due(now))
		c.Set(web, nil, nil, now)
	}
	if open > maxAsking/2 {
		t.Errorf("%d questions are open, at most %d are allowed", open, maxAsking/2)
	}
}

// TestLargeServiceDoesNotWaitForRoom: a Service with more endpoints than one Service can have checked is not planned again
// each time that another check of its namespace ends: there will never be room for the rest.
func TestLargeServiceDoesNotWaitForRoom(t *testing.T) {
	c, check := steady(), tcpCheck()
	if left := c.left(web, check, targets(maxChecksOfService+1), start); left != 1 {
		t.Fatalf("%d endpoints find no room", left)
	}
	small := state.Name{Namespace: web.Namespace, Name: "small"}
	c.Set(small, check, []probe.Target{target(60_000)}, start)
	if c.Set(small, nil, nil, start); c.Starves(web) || len(c.Fed()) > 0 {
		t.Error("it is planned again")
	}
}

// TestSlowCheckBesideFastOne: two Services of a namespace check the same endpoint, one every second and one every minute. Both
// are asked.
func TestSlowCheckBesideFastOne(t *testing.T) {
	c, fast, slow := steady(), tcpCheck(), tcpCheck()
	fast.Interval, slow.Interval, slow.Kind = time.Second, time.Minute, state.CheckHTTP
	c.Set(web, fast, targets(1), start)
	c.Set(state.Name{Namespace: "shop", Name: "slow"}, slow, targets(1), start)
	asked := map[state.CheckKind]int{}
	for now := start; now.Before(start.Add(10 * time.Minute)); now = now.Add(checkPause) {
		for _, q := range c.Due(now) {
			asked[q.Check.Kind]++
			c.Answered(q, answerIs(true), now)
		}
	}
	if n := asked[state.CheckHTTP]; n < 9 || n > 11 || asked[state.CheckTCP] < 500 {
		t.Errorf("asked in ten minutes: %v", asked)
	}
}
