package planning

import (
	"log/slog"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestCredit: large changes take from the credit of their namespace, and time gives it back.
func TestCredit(t *testing.T) {
	p := NewPauses(slog.New(slog.DiscardHandler), &config.Budgets{NamespaceElements: 5000, NamespaceChanges: 1000})
	begin := time.Now()
	for _, step := range []struct {
		after, n int // seconds since the begin; changes
		want     time.Duration
	}{
		{0, 4000, 0},
		{1, 2000, 0},               // 0 left
		{2, 3000, 2 * time.Second}, // 1,000 came back
		{3, 1000, 0},               // it waits already
		{5, 1000, time.Second},     // 2,000 came back, which were missing
		{3600, 6000, time.Second},  // no more than 5,000 came back
		{7200, 5000, 0},            // 5,000 again
		{7200, 1500, 1500 * time.Millisecond},
	} {
		wait := p.Charge(map[state.Name]int{{Namespace: "tenant", Name: "large"}: step.n}, nil, begin.Add(time.Duration(step.after)*time.Second))
		if got := wait["tenant"]; got.Round(time.Millisecond) != step.want {
			t.Errorf("%d changes after %d s: wait %s, want %s", step.n, step.after, got, step.want)
		}
	}
	p.Charge(map[state.Name]int{{Namespace: "other", Name: "large"}: 1000}, nil, begin.Add(20_000*time.Second))
	if len(p.credits) != 1 {
		t.Errorf("the credits of %d namespaces are kept, want 1", len(p.credits))
	}
}

// TestPausesOfPlanning: what changes of a namespace have a pass plan beyond the largest Service counts, too: thousands of small
// Services as well, and only for the namespace whose changes asked for it.
func TestPausesOfPlanning(t *testing.T) {
	p := NewPauses(slog.New(slog.DiscardHandler), &config.Budgets{
		ServiceFrontends: 10, ServiceElements: 90, NamespaceElements: 5000, NamespaceChanges: 1000,
	})
	thief, large := state.Name{Namespace: "tenant", Name: "thief"}, state.Name{Namespace: "shop", Name: "large"}
	d := Draft{Caused: map[state.Name]int{thief: 100_000, large: 100}, Size: 200_000}
	if over := p.Planned(&d); len(over) != 1 || over[thief] != 99_900 {
		t.Errorf("they pay for %v", over)
	}
	if wait := p.Charge(nil, p.Planned(&d), time.Now()); len(wait) != 1 || wait["tenant"] != 94_900*time.Millisecond {
		t.Errorf("they wait: %v", wait)
	}
}
