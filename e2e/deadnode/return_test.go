//go:build e2e

package deadnode

import (
	"fmt"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/cluster/rate"
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
	b.untilServed("10.0.2.", false)
	renamed := tenEndpoints()
	renamed[9].node = "node-4"
	b.slices(renamed)
	b.waitFor("the EndpointSlice of an endpoint that did not answer has changed; it gets connections again")
	b.untilServed("10.0.2.1 . 8081", true)
	b.At(t, lab.Remote).Must(t, "", "nft", "delete", "table", "netdev", "gone")
	b.untilServed("10.0.2.1 . 8080", true)
	b.untilServed("10.0.2.2 . 8080", true)
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
	b.eventually("the dead endpoint gets nothing", func(rate.Outcome) bool {
		for range 20 { // half of them would fail
			if b.try() != rate.Answered {
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
	lab.Eventually(b.t, what, func() error {
		list := b.Node.Must(b.t, "", "nft", "list", "map", "ip", "verdict", "endpoints")
		part, all := strings.Count(list, " : "+lab.PodAddress(lab.IPv4, "c").String()+" . 9"), strings.Count(list, " : 10.")
		if !as(part, all) {
			return fmt.Errorf("it has %d of %d slots", part, all)
		}
		return nil
	})
}
