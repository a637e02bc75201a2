package socket

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestText: what people read has since when and why, and no time for what never began.
func TestText(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	ago := now.Add(-90 * time.Second)
	began := checks.Check{Record: checks.Record{Since: ago}}
	why := func(since time.Time, text string, hold checks.Hold) checks.Suspect {
		return checks.Suspect{Check: checks.Check{Record: checks.Record{Since: since, Why: text}}, Hold: hold}
	}
	dead := endpointhealth.Status{
		Suspect: checks.Suspect{Check: began}, State: endpointhealth.StateFailed, Ejected: true,
	}
	held := endpointhealth.Status{
		Suspect: checks.Suspect{Check: began, Reason: checks.Refusing, Hold: checks.Limit, StillReady: true}, State: endpointhealth.StateFailed,
	}
	for _, tt := range []struct {
		is         endpointhealth.Status
		want       string
		bad, noNew bool
	}{
		{endpointhealth.Status{State: endpointhealth.StateSuspected, Suspect: checks.Suspect{Check: began, Reason: checks.SameNode}},
			"suspected for 1m30s: another endpoint of its node did not answer", true, false},
		{dead, "ejected for 1m30s: clients had no answer", true, true},
		{held, "failed for 1m30s: it reset connections; not ejected: no more of the pool may be ejected; " +
			"its slice still calls it ready: perhaps only this node cannot reach it", true, false},
		{endpointhealth.Status{State: endpointhealth.StateFailing, Suspect: why(ago, "HTTP status 503", checks.None)},
			"fails its check for 1m30s: HTTP status 503", true, true},
		{endpointhealth.Status{State: endpointhealth.StateFailing, Suspect: why(ago, "connection refused", checks.NobodyGood)},
			"fails its check for 1m30s: connection refused; it gets connections all the same: no endpoint is good", true, false},
		{endpointhealth.Status{State: endpointhealth.StateBackupIdle, Suspect: why(time.Time{}, "another endpoint is good", checks.None)},
			"backup, not used: another endpoint is good", false, true},
		{endpointhealth.Status{State: endpointhealth.StateBackupInUse, Suspect: why(ago, "no other endpoint is good", checks.None)},
			"backup, in use for 1m30s: no other endpoint is good", false, false},
	} {
		var e Endpoint
		if e.remark([]endpointhealth.Status{tt.is}, now); e.Remark != tt.want || e.Bad != tt.bad || e.NoNew != tt.noNew {
			t.Errorf("%q, bad %t, no new connections %t\nwant %q, %t, %t", e.Remark, e.Bad, e.NoNew, tt.want, tt.bad, tt.noNew)
		}
	}
}

// TestOneEndpoint: TCP and UDP of an endpoint are two things, and all that is known of one is told.
func TestOneEndpoint(t *testing.T) {
	first, second := netip.MustParseAddrPort("10.0.1.1:53"), netip.MustParseAddrPort("10.0.1.2:53")
	list := []endpointhealth.Status{
		{Suspect: checks.Suspect{At: first}, Protocol: state.TCP, State: endpointhealth.StateFailed},
		{Suspect: checks.Suspect{At: first}, Protocol: state.TCP, State: endpointhealth.StateFailing},
		{Suspect: checks.Suspect{At: first}, Protocol: state.UDP, State: endpointhealth.StateFailing},
		{Suspect: checks.Suspect{At: second}, Protocol: state.UDP, State: endpointhealth.StateBackupIdle},
	}
	for _, tt := range []struct {
		at       netip.AddrPort
		protocol state.Protocol
		want     int
	}{{first, state.TCP, 2}, {first, state.UDP, 1}, {second, state.TCP, 0}, {second, state.UDP, 1}} {
		if got := statusesAt(list, tt.at, tt.protocol); len(got) != tt.want {
			t.Errorf("%s %s: %+v, want %d", tt.at, tt.protocol, got, tt.want)
		}
	}
}
