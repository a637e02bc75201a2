package planning

import (
	"fmt"
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
	charge := func(namespace string, n, after int) map[string]time.Duration {
		name := state.Name{Namespace: namespace, Name: "large"}
		return p.Charge(map[state.Name]int{name: n}, &Draft{Took: map[state.Name]time.Duration{name: 0}}, begin.Add(time.Duration(after)*time.Second))
	}
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
		wait := charge("tenant", step.n, step.after)
		if got := wait["tenant"]; got.Round(time.Millisecond) != step.want {
			t.Errorf("%d changes after %d s: wait %s, want %s", step.n, step.after, got, step.want)
		}
	}
	charge("other", 1000, 20_000)
	if len(p.credits) != 1 {
		t.Errorf("the credits of %d namespaces are kept, want 1", len(p.credits))
	}
}

// TestPausesOfPlanning: the time of planning counts, whether or not anything changes, and only for the namespace whose changes
// asked for it.
func TestPausesOfPlanning(t *testing.T) {
	p := NewPauses(slog.New(slog.DiscardHandler), &config.Budgets{NamespaceElements: 5000, NamespaceChanges: 1000})
	d := Draft{Took: map[state.Name]time.Duration{
		{Namespace: "tenant", Name: "thief"}: 50 * time.Millisecond, {Namespace: "shop", Name: "small"}: 4 * time.Millisecond,
	}}
	if wait := p.Charge(nil, &d, time.Now()); len(wait) != 1 || wait["tenant"] != 5*time.Second {
		t.Errorf("they wait: %v", wait)
	}
	if len(p.credits) != 1 {
		t.Errorf("%d namespaces pay, want one", len(p.credits))
	}
}

// TestBills: what a pass changes is summed up for each namespace, at the Service whose change it was.
func TestBills(t *testing.T) {
	name := func(namespace, service string) state.Name { return state.Name{Namespace: namespace, Name: service} }
	thief, other := name("tenant", "thief"), name("tenant", "other")
	d := Draft{
		Cause: map[state.Name]state.Name{},
		Took:  map[state.Name]time.Duration{thief: time.Millisecond, other: 0, name("shop", "web"): 0},
	}
	changed := map[state.Name]int{thief: 1, other: 100, name("shop", "web"): 999, name("mall", "nobody's change"): 5000}
	for i := range 100 {
		victim := name("shop", fmt.Sprint("victim", i))
		d.Cause[victim], changed[victim] = thief, 20
	}
	got := bills(changed, &d)
	want := bill{changes: 2001 + 100 + 200, planning: time.Millisecond, most: 2001 + 200, service: thief}
	if len(got) != 1 || got["tenant"] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
