package socket

import (
	"net/netip"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/proxier/outlier"
	"github.com/verdict-proxy/verdict/proxier/state"
)

var (
	ejects   = state.Name{Namespace: "shop", Name: "ejects"}
	observes = state.Name{Namespace: "shop", Name: "observes"}
)

// TestText: what people read has since when and why, and no time for what never began.
func TestText(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
	ago := now.Add(-90 * time.Second)
	dead := outlier.Status{State: outlier.StateFailed, Since: ago, Services: []state.Name{ejects, observes}, Ejected: []state.Name{ejects}}
	held := outlier.Status{State: outlier.StateFailed, Since: ago, Reason: outlier.Refusing, Hold: outlier.Limit, StillReady: true}
	for _, tt := range []struct {
		is         outlier.Status
		from       state.Name
		want       string
		bad, noNew bool
	}{
		{outlier.Status{State: outlier.StateSuspected, Since: ago, Reason: outlier.SameNode}, ejects,
			"suspected for 1m30s: another endpoint of its node did not answer", true, false},
		{dead, ejects, "ejected for 1m30s: clients had no answer", true, true},
		{dead, observes, "failed for 1m30s: clients had no answer", true, false},
		{dead, state.Name{}, "ejected for 1m30s: clients had no answer", true, true},
		{held, ejects, "failed for 1m30s: it reset connections; not ejected: no more of the pool may be ejected; " +
			"its slice still calls it ready: perhaps only this node cannot reach it", true, false},
		{outlier.Status{State: outlier.StateFailing, Since: ago, Why: "HTTP status 503"}, ejects,
			"fails its check for 1m30s: HTTP status 503", true, true},
		{outlier.Status{State: outlier.StateFailing, Since: ago, Why: "connection refused", Hold: outlier.NobodyGood}, ejects,
			"fails its check for 1m30s: connection refused; it gets connections all the same: no endpoint is good", true, false},
		{outlier.Status{State: outlier.StateBackupIdle, Why: "another endpoint is good"}, ejects,
			"backup, not used: another endpoint is good", false, true},
		{outlier.Status{State: outlier.StateBackupInUse, Since: ago, Why: "no other endpoint is good"}, ejects,
			"backup, in use for 1m30s: no other endpoint is good", false, false},
		{outlier.Status{State: outlier.StateSlowStart, Since: ago, Why: "its weight grows over 5m0s"}, ejects,
			"slow start for 1m30s: its weight grows over 5m0s", false, false},
	} {
		var e Endpoint
		if e.remark([]outlier.Status{tt.is}, tt.from, now); e.Remark != tt.want || e.Bad != tt.bad || e.NoNew != tt.noNew {
			t.Errorf("%q, bad %t, no new connections %t\nwant %q, %t, %t", e.Remark, e.Bad, e.NoNew, tt.want, tt.bad, tt.noNew)
		}
		if o := outlying(&tt.is, tt.from, now); o.Text != tt.want || (o.Reason == "") == (o.Why == "") {
			t.Errorf("%+v, want the text %q", o, tt.want)
		}
	}
}

// TestOneEndpoint: TCP and UDP of an endpoint are two things, and all that is known of one is told.
func TestOneEndpoint(t *testing.T) {
	first, second := netip.MustParseAddrPort("10.0.1.1:53"), netip.MustParseAddrPort("10.0.1.2:53")
	list := []outlier.Status{
		{Endpoint: first, Protocol: state.TCP, State: outlier.StateFailed}, {Endpoint: first, Protocol: state.TCP, State: outlier.StateFailing},
		{Endpoint: first, Protocol: state.UDP, State: outlier.StateFailing}, {Endpoint: second, Protocol: state.UDP, State: outlier.StateBackupIdle},
	}
	for _, tt := range []struct {
		at       netip.AddrPort
		protocol state.Protocol
		want     int
	}{{first, state.TCP, 2}, {first, state.UDP, 1}, {second, state.TCP, 0}, {second, state.UDP, 1}} {
		if got := of(list, tt.at, tt.protocol); len(got) != tt.want {
			t.Errorf("%s %s: %+v, want %d", tt.at, tt.protocol, got, tt.want)
		}
	}
}
