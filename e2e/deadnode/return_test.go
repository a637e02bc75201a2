//go:build e2e

package deadnode

import (
	"strings"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestReturn: endpoints that answer again get connections again, and so does one about which its EndpointSlice says
// something new, at once.
func TestReturn(t *testing.T) {
	b := newBed(t, eject, tenEndpoints())
	b.untilAsked(tenEndpoints())
	l := b.load(lab.Outside, vip(lab.IPv4), 100)
	defer l.end()
	b.vanish()
	for end := time.Now().Add(time.Minute); b.served("10.0.2."); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the endpoints are not ejected")
		}
	}
	renamed := tenEndpoints()
	renamed[9].node = "node-4"
	b.slices(renamed)
	b.waitFor("the EndpointSlice of an endpoint that did not answer has changed; it gets connections again")
	if !b.served("10.0.2.1 . 8081") {
		t.Error("the endpoint with a new word gets no connections")
	}
	b.At(t, lab.Remote).Must(t, "", "nft", "delete", "table", "netdev", "gone")
	for end := time.Now().Add(time.Minute); !b.served("10.0.2.1 . 8080") || !b.served("10.0.2.2 . 8080"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the endpoints do not return")
		}
	}
}

// served reports whether the kernel has an endpoint whose text begins like this.
func (b *bed) served(text string) bool {
	return strings.Contains(b.Node.Must(b.t, "", "nft", "list", "map", "ip", "verdict", "endpoints"), " : "+text)
}

// TestFlagChecks: the flag has the endpoints of a folder checked, and one that refuses gets nothing. With
// --outlier-detection=off, nothing else notices it.
func TestFlagChecks(t *testing.T) {
	b := newBed(t, "", []place{{"a", 8080, lab.NodeName}, {"c", 9, lab.RemoteNodeName}},
		"--outlier-detection=off", "--health-check=tcp interval=1s fall=1")
	b.waitFor("an endpoint fails its check")
	b.eventually("the dead endpoint gets nothing", func(error) bool {
		for range 20 { // half of them would fail
			if b.try() != nil {
				return false
			}
		}
		return true
	})
}

// TestShareReturns: an endpoint that fails its check has no share, and when it returns that of the others.
func TestShareReturns(t *testing.T) {
	var stop func()
	b := newBedAfter(t, func(b *bed) { stop = b.serverOnce() }, checked(``),
		[]place{{"a", 8080, lab.NodeName}, {"c", 9, lab.RemoteNodeName}})
	b.eventually("the endpoints serve", works)
	stop()
	b.shareUntil("the endpoint is out", func(part, all int) bool { return part == 0 && all > 0 })
	stop = b.serverOnce()
	defer stop()
	b.shareUntil("its share is that of the others", func(part, all int) bool { return part > 0 && 2*part == all })
}

// shareUntil waits until an endpoint has a share of the slots.
func (b *bed) shareUntil(what string, as func(part, all int) bool) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		list := b.Node.Must(b.t, "", "nft", "list", "map", "ip", "verdict", "endpoints")
		part, all := strings.Count(list, " : "+lab.PodAddress(lab.IPv4, "c").String()+" . 9"), strings.Count(list, " : 10.")
		if as(part, all) {
			return
		}
		if time.Now().After(end) {
			b.t.Fatalf("%s: %d of %d slots", what, part, all)
		}
	}
}
