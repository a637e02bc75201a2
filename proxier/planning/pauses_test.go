package planning

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/proxier/plan"
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

// TestPausesOfPlanning: what a pass plans beyond the largest Service counts, too.
func TestPausesOfPlanning(t *testing.T) {
	p := NewPauses(slog.New(slog.DiscardHandler), &config.Budgets{ServiceFrontends: 10, ServiceElements: 90})
	d := Draft{Plans: map[state.Name]Planned{}}
	for i := range 5 {
		name := state.Name{Namespace: []string{"tenant", "shop"}[i/4], Name: fmt.Sprint(i)}
		d.Order = append(d.Order, name)
		d.Plans[name] = Planned{Plan: &plan.Service{Name: name, Used: plan.Usage{Frontends: 5, Elements: 45}}}
		d.Size += 50
	}
	total := 0
	for name, n := range p.Planned(&d) {
		if total += n; name.Namespace != "tenant" {
			t.Errorf("%s has to pay", name)
		}
	}
	if total != 100 {
		t.Errorf("%d, want what four plans of 50 are above 100", total)
	}
}

// TestManySmallPlans: one change has thousands of small Services planned. None of them is large, and their namespace pays.
func TestManySmallPlans(t *testing.T) {
	p := NewPauses(slog.New(slog.DiscardHandler), &config.Budgets{
		ServiceFrontends: 10, ServiceElements: 90, NamespaceElements: 5000, NamespaceChanges: 1000,
	})
	d := Draft{Plans: map[state.Name]Planned{}}
	for i := range 2000 {
		name := state.Name{Namespace: "tenant", Name: fmt.Sprint(i)}
		d.Order = append(d.Order, name)
		d.Plans[name] = Planned{Plan: &plan.Service{Name: name, Used: plan.Usage{Frontends: 5, Elements: 45}}}
		d.Size += 50
	}
	if wait, want := p.Charge(nil, p.Planned(&d), time.Now())["tenant"], 94900*time.Millisecond; wait != want {
		t.Errorf("the namespace waits for %s, want %s", wait, want)
	}
}
