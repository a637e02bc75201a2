package conntrack

import (
	"maps"
	"net/netip"
	"slices"
	"testing"

	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/plan"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestLeftOutOnce: the connections to endpoints are looked for once, when a plan has left one out, and again when one was
// good meanwhile. One that accepts connections has none to look for. An endpoint that came while a cleaning was running is looked for by the next one.
func TestLeftOutOnce(t *testing.T) {
	web := state.Name{Namespace: "shop", Name: "web"}
	at := func(i byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, i}), 80) }
	plans := func(endpoints ...byte) *plan.Service {
		p := &plan.Service{Name: web, Ports: []plan.Port{
			{Family: state.IPv4, Protocol: state.TCP, Frontends: []plan.Frontend{{Frontend: serviceport.Frontend{Addr: at(99).Addr(), Port: 80}}, {Frontend: serviceport.Frontend{Port: 30080}}}},
		}}
		for _, i := range endpoints {
			p.Choices = append(p.Choices, plan.Choice{Protocol: state.TCP, At: at(i), Use: plan.Ejected},
				plan.Choice{Protocol: state.UDP, At: at(i), Use: plan.Ejected})
		}
		// This one accepts connections, so none of them waits for an answer.
		p.Choices = append(p.Choices, plan.Choice{Protocol: state.TCP, At: at(4), Use: plan.Ejected, Accepts: true})
		return p
	}
	tr := NewTracker()
	looksFor := func(what string, want ...byte) {
		t.Helper()
		s := tr.LeftOut(slices.Collect(maps.Keys(tr.WaitingLeftOut()))...)
		if len(want) > 0 != (len(s.unanswered.made()) == 2) {
			t.Fatalf("%s: %v", what, s.unanswered)
		}
		for i := byte(1); i < 5; i++ {
			for _, to := range []netip.AddrPort{at(99), netip.AddrPortFrom(at(50).Addr(), 30080)} {
				e := entry{Flow: Flow{Dst: to, Reply: at(i), DNAT: true, TCP: true}, state: tcpSynSent}
				wanted := false
				for _, w := range want {
					wanted = wanted || w == i
				}
				if got := s.isUnanswered(&e, map[netip.Addr]bool{at(50).Addr(): true}); got != wanted {
					t.Errorf("%s: connections from %s to %s are deleted: %t", what, to, at(i), got)
				}
				if e.status = statusSeenReply; s.isUnanswered(&e, nil) {
					t.Errorf("%s: a connection with an answer is deleted", what)
				}
			}
		}
	}
	tr.Set(web, plans())
	looksFor("all are good")
	tr.Set(web, plans(1, 2))
	looksFor("two are left out", 1, 2)
	tr.Set(web, plans(1, 2, 3)) // a cleaning is running
	tr.Done()
	looksFor("after the first cleaning", 1, 2, 3)
	tr.Done()
	looksFor("after the second one")
	if len(tr.WaitingLeftOut()) > 0 {
		t.Error("after it, cleanings still look for connections that nobody waits for")
	}
	tr.Set(web, plans(1, 2))
	looksFor("one returned")
	tr.Set(web, plans(1, 2, 3))
	looksFor("one failed again", 1, 2, 3) // nobody sends to the others, so to look for them again changes nothing
	tr.Set(web, plans(1, 2))
	looksFor("one returned before the cleaning", 1, 2)
	tr.Set(web, nil)
	if looksFor("the Service is gone"); len(tr.known) > 0 {
		t.Error("the Tracker remembers a Service that is gone")
	}
}
