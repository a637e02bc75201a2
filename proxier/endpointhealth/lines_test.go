package endpointhealth

import (
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/proxier/endpointhealth/checks"
	"github.com/verdict-proxy/verdict/proxier/endpointhealth/probe"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestLines: what happens to endpoints is one line, with the level that it deserves.
func TestLines(t *testing.T) {
	note := func(k checks.Kind) Report {
		return Report{Notes: []checks.Note{{
			Kind: k, Question: &probe.Question{}, Services: []state.Name{web},
			Suspect: checks.Suspect{At: at(1), Member: checks.Member{Service: web}},
		}}}
	}
	back := func(down bool) Report {
		return Report{Moves: []Move{{Service: web, Back: []netip.AddrPort{at(1)}, Down: down}}}
	}
	for what, tt := range map[string]struct {
		r    Report
		want string
		not  string
	}{
		"recovered":     {note(checks.Recovered), "level=INFO", "level=WARN"},
		"check fails":   {note(checks.CheckFails), "level=WARN", "level=INFO"},
		"fell at once":  {note(checks.FellAtOnce), "level=WARN", "endpoint="},
		"good again":    {back(false), "endpoints get connections again", "no endpoint is good"},
		"none is good":  {back(true), "no endpoint is good", "endpoints get connections again"},
		"check passes":  {note(checks.CheckPasses), "level=INFO", "level=WARN"},
		"never noticed": {note(checks.SuspicionBegan), "", "level="},
	} {
		var log strings.Builder
		w := newWorld(t, func(o *Options) { o.Log = slog.New(slog.NewTextHandler(&log, nil)) })
		w.reporter.write(&tt.r)
		text := log.String()
		if lines := strings.Count(text, "\n"); lines > 1 || !strings.Contains(text, tt.want) || strings.Contains(text, tt.not) {
			t.Errorf("%s: the log says\n%s", what, text)
		}
	}
}

// TestBad: a backup endpoint is not bad, whether it is in use or not.
func TestBad(t *testing.T) {
	for s, want := range map[State]bool{StateSuspected: true, StateFailed: true, StateFailing: true, StateBackupInUse: false, StateBackupIdle: false} {
		if s.Bad() != want {
			t.Errorf("%s: %t", s, s.Bad())
		}
	}
}
