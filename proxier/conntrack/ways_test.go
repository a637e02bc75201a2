package conntrack

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestWays: an endpoint that answers to another address than the client's sees a masqueraded client.
func TestWays(t *testing.T) {
	client := netip.MustParseAddr("10.9.0.1")
	for answers, masqueraded := range map[string]bool{"10.9.0.1": false, "10.0.0.254": true} {
		e := entry{}
		e.Src, e.reply.dst = client, netip.MustParseAddr(answers)
		if got := e.way(func(netip.Addr) uint8 { return 0 }).Masqueraded; got != masqueraded {
			t.Errorf("an answer to %s: %t", answers, got)
		}
	}
}

// TestEndIsRefused: an error says which connections go on.
func TestEndIsRefused(t *testing.T) {
	p := newPeer(t, func(list []netlink.Message) (out [][]byte) {
		if list[0].Header.Type == msgDelete {
			return acks(unix.EPERM)(list)
		}
		for _, a := range answersTo(t, "IPv4") {
			out = append(out, renumber(a, list[0].Header.Sequence))
		}
		return out
	})
	all := func(Way) bool { return true }
	n, err := End(p.options(), state.IPv4, func(netip.Addr) uint8 { return 0 }, all)
	if n != 0 || !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "end IPv4 connections") {
		t.Errorf("%d, %v", n, err)
	}
}

// TestUnansweredSCTP: connections of SCTP are looked for among those of SCTP.
func TestUnansweredSCTP(t *testing.T) {
	f := frontend("10.96.0.10:80")
	f.SCTP = true
	s := Stale{unanswered: indexOf(map[Frontend]target{f: {}})}
	if list := s.unansweredFilters(state.IPv4); len(list) != 1 || list[0].protocol != unix.IPPROTO_SCTP {
		t.Errorf("%+v", list)
	}
}

// TestUnconfirmed: a flow whose first packet is still on its way is not confirmed.
func TestUnconfirmed(t *testing.T) {
	for status, want := range map[uint32]bool{0: false, statusConfirmed: true} {
		e := entry{}
		e.status = status
		if got := e.found().Confirmed; got != want {
			t.Errorf("status %d: %t", status, got)
		}
	}
}
