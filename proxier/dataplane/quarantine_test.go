package dataplane

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/plan"
)

// pickyRuleset refuses to write everything while it has one service port, as the kernel might.
type pickyRuleset struct {
	*rulesInMemory
	refuses string
	has     bool
	full    bool // the next Apply writes everything
}

func (r *pickyRuleset) Set(p *contents.Port) error {
	r.has = r.has || p.Name == r.refuses
	return r.rulesInMemory.Set(p)
}

func (r *pickyRuleset) Delete(f program.Family, name string) {
	r.has = r.has && name != r.refuses
	r.rulesInMemory.Delete(f, name)
}

func (r *pickyRuleset) Apply() (nft.Result, error) {
	if !r.has {
		r.full = false
		return r.rulesInMemory.Apply()
	}
	rejected := nft.Result{Outcome: kernel.Rejected, Full: r.full}
	if !r.full {
		r.full = true
		return rejected, unix.EINVAL
	}
	return rejected, &nft.RefusedError{Port: contents.PortID{Family: program.IPv4, Name: r.refuses}, What: "add element", Err: unix.EINVAL}
}

// settle does what the loop does with a Service until everything is applied, and returns the problems.
func settle(t *testing.T, d *Dataplane, set func() []string) (problems []string) {
	t.Helper()
	for range 5 {
		problems = set()
		for range 3 {
			r := d.Apply()
			if r.Applied() {
				return problems
			}
			if r.Err == nil && len(r.Replan) > 0 {
				break
			}
		}
	}
	t.Fatal("the dataplane does not settle")
	return nil
}

// TestQuarantine: the kernel refuses one Service. The others are served; the refused one has a Problem, and is tried
// again after 1 minute, after 2, and so on, until the kernel takes it.
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := &pickyRuleset{rulesInMemory: inMemory(), refuses: "default/svc-2:http"}
		d := New(Options{Ruleset: rules})
		set := func() (problems []string) {
			for i := range 4 {
				for _, p := range d.Set(stickyPlan(i, 0)) {
					problems = append(problems, p.Reason)
				}
			}
			return problems
		}
		served := func(want ...bool) {
			t.Helper()
			text := rules.kernel.String()
			for i, name := range []string{"default/svc-1:http", "default/svc-2:http"} {
				if strings.Contains(text, name) != want[i] {
					t.Errorf("%s is served: %t", name, !want[i])
				}
			}
			all, counted := 3, d.Totals().Engines[NFT]
			if want[1] {
				all = 4
			}
			if n := counted.Frontends[plan.ClusterIP]; n != all || counted.Pools[0] != all {
				t.Errorf("%d frontends and %d pools are counted, the kernel has %d", n, counted.Pools[0], all)
			}
		}
		for _, wait := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute} {
			problems := settle(t, d, set)
			if len(problems) != 1 || !strings.Contains(problems[0], "invalid argument") || !strings.Contains(problems[0], wait.String()) {
				t.Fatalf("problems %q, want one with the cause and %s", problems, wait)
			}
			served(true, false)
			time.Sleep(wait - time.Second)
			if r := d.Tick(); len(r.Replan) > 0 {
				t.Fatalf("%v is tried again too early", r.Replan)
			}
			time.Sleep(time.Second)
			if r := d.Tick(); len(r.Replan) != 1 || r.Replan[0] != stickyPlan(2, 0).Name {
				t.Fatalf("to plan again: %v", r.Replan)
			}
		}
		rules.refuses = ""
		rules.has = false
		if problems := settle(t, d, set); len(problems) > 0 || len(d.quarantine) > 0 {
			t.Errorf("in the end there are the problems %q and the quarantine %v", problems, d.quarantine)
		}
		served(true, true)
		d.Delete(stickyPlan(2, 0).Name)
	})
}

// TestQuarantineEndsWithTheService: nothing of a deleted Service is kept.
func TestQuarantineEndsWithTheService(t *testing.T) {
	rules := &pickyRuleset{rulesInMemory: inMemory(), refuses: "default/svc-2:http", full: true}
	d := New(Options{Ruleset: rules})
	d.Set(stickyPlan(2, 0))
	if r := d.Apply(); len(r.Replan) != 1 || len(d.quarantine) != 1 {
		t.Fatalf("%+v, quarantine %v", r, d.quarantine)
	}
	d.Delete(stickyPlan(2, 0).Name)
	if r := d.Apply(); !r.Applied() || len(d.quarantine) > 0 {
		t.Fatalf("%+v, quarantine %v", r, d.quarantine)
	}
}
