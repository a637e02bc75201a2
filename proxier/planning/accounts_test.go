package planning

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/serviceport"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// bank has Accounts with a share of 5 ms a second, and 25 ms at once, and what they are charged.
type bank struct {
	*Accounts
	store *state.Store
	log   *strings.Builder
	begin time.Time
}

func newBank() *bank {
	store, log := state.NewStore(), &strings.Builder{}
	store.MarkSynced()
	accounts := NewAccounts(store, &config.Budgets{NamespaceElements: 5000, NamespaceChanges: 1000}, slog.New(slog.NewTextHandler(log, nil)))
	return &bank{accounts, store, log, time.Now()}
}

func named(namespace, service string) state.Name {
	return state.Name{Namespace: namespace, Name: service}
}

// charge charges a pass in which one Service changed.
func (b *bank) charge(name state.Name, planning time.Duration, changes int32, took time.Duration, at time.Duration) (pauses int) {
	d := Draft{Costs: map[state.Name]Cost{name: {Planning: planning}}}
	all := serviceport.Counts{serviceport.Slot: changes}
	changed := map[state.Name]serviceport.Counts{name: all}
	if changes == 0 {
		changed = nil
	}
	return b.Charge(&d, &dataplane.Result{Changed: changed, Counts: all}, new(dataplane.Waiting), took, b.begin.Add(at))
}

// rest is how long a namespace waits from some time on.
func (b *bank) rest(namespace string, at time.Duration) time.Duration {
	return max(0, b.of[namespace].until.Sub(b.begin.Add(at))).Round(time.Millisecond)
}

// TestCredit: large changes take from the share of their namespace, and time gives it back. That is so for changes that are counted,
// however fast they were, and for time, whatever it was for.
func TestCredit(t *testing.T) {
	tenant := named("tenant", "large")
	for how, charge := range map[string]func(b *bank, n int32, at time.Duration) int{
		"changes": func(b *bank, n int32, at time.Duration) int { return b.charge(tenant, 0, n, 0, at) },
		"planning": func(b *bank, n int32, at time.Duration) int {
			return b.charge(tenant, time.Duration(n)*perChange, 0, 0, at)
		},
	} {
		b := newBank()
		for _, step := range []struct {
			after time.Duration // seconds since the begin
			n     int32
			rest  time.Duration
		}{
			{0, 4000, 0},
			{1, 2000, 0},               // 0 left
			{2, 3000, 2 * time.Second}, // 1,000 came back
			{3, 1000, time.Second},     // it waits already
			{5, 1000, time.Second},     // 2,000 came back, which were missing
			{3600, 6000, time.Second},  // no more than 5,000 came back
			{7200, 5000, 0},            // 5,000 again
			{7200, 1500, 1500 * time.Millisecond},
			{9000, 900, 0}, // others do not notice it
			{9000, 5000, 0},
		} {
			at := step.after * time.Second
			if charge(b, step.n, at); b.rest("tenant", at) != step.rest {
				t.Errorf("%s: %d after %d s: waits %s, want %s", how, step.n, step.after, b.rest("tenant", at), step.rest)
			}
		}
		if n := strings.Count(b.log.String(), "changes too much"); n != 3 { // not twice within 10 minutes
			t.Errorf("%s: %d lines:\n%s", how, n, b.log)
		}
	}
}

// TestWhoPays: what a pass cost is charged to the namespace whose change asked for it, also what it changes at others, and nothing
// to those. Planning counts, whether or not anything changes. What nobody asked for is nobody's.
func TestWhoPays(t *testing.T) {
	b := newBank()
	thief, other, web := named("tenant", "thief"), named("tenant", "other"), named("shop", "web")
	d := Draft{
		Cause: map[state.Name]state.Name{},
		Costs: map[state.Name]Cost{thief: {Planning: 3 * time.Millisecond}, other: {}, web: {}},
	}
	changed, all := map[state.Name]serviceport.Counts{}, serviceport.Counts{}
	change := func(name state.Name, n int32) {
		changed[name] = serviceport.Counts{serviceport.Key: n}
		all[serviceport.Key] += n
	}
	change(thief, 1)
	change(other, 100)
	change(web, 99)
	change(named("mall", "environment"), 1000)
	for i := range 100 {
		victim := named("shop", fmt.Sprint("victim", i))
		d.Cause[victim] = thief
		change(victim, 20)
	}
	const took = 40 * time.Millisecond
	b.Charge(&d, &dataplane.Result{Changed: changed, Counts: all}, new(dataplane.Waiting), took, b.begin)
	tenant, shop := b.of["tenant"], b.of["shop"]
	if tenant.Changes != 2101 || shop.Changes != 99 || len(b.of) != 2 || tenant.Planning != 3*time.Millisecond || shop.Planning != 0 {
		t.Errorf("tenant: %+v, shop: %+v", tenant.Cost, shop.Cost)
	}
	if sum := tenant.Kernel + shop.Kernel; sum > took || sum < took/2 || shop.Kernel > tenant.Kernel/10 {
		t.Errorf("of %s, the tenant pays %s, and the shop %s", took, tenant.Kernel, shop.Kernel)
	}
	if got := b.Seconds(); len(got) != 2 || got["tenant"] != (tenant.Planning+tenant.Kernel).Seconds() {
		t.Errorf("they used %v", got)
	}
}

// TestWhoWaits: who has used much waits while others have their turns, and then for the share. The cluster itself never does. The log
// says who used what.
func TestWhoWaits(t *testing.T) { synctest.Test(t, testWhoWaits) }

func testWhoWaits(t *testing.T) {
	b := newBank()
	change := func(name state.Name) { b.store.SetService(&state.Service{Name: name}, nil) }
	take := func() string { c, _ := b.store.Take(1); return fmt.Sprint(c.Services) }
	small := func(i int) state.Name { return named("shop", fmt.Sprint("small", i)) }
	change(named("tenant", "large"))
	for i := range 4 {
		change(small(i))
	}
	change(named("default", "kubernetes"))
	change(named(state.SystemNamespace, "dns"))
	b.Beside("tenant", 7*time.Millisecond)
	for _, want := range []string{"[default/kubernetes]", "[kube-system/dns]", "[tenant/large]"} {
		if got := take(); got != want {
			t.Errorf("%s has its turn, want %s", got, want)
		}
	}
	change(named("tenant", "large"))
	b.charge(named("tenant", "large"), 4*state.Turn, 0, 0, 0) // three more than one turn
	for i, want := range []string{"[shop/small0]", "[shop/small1]", "[shop/small2]", "[shop/small3]", "[tenant/large]", "[]"} {
		if got := take(); got != want {
			t.Errorf("turn %d: %s, want %s", i, got, want)
		}
	}
	for _, name := range []state.Name{named("tenant", "large"), named(state.SystemNamespace, "dns")} {
		change(name)
		b.charge(name, time.Second, 3000, time.Second, 0)
	}
	if got, next := take(), take(); got != "[kube-system/dns]" || next != "[]" {
		t.Errorf("%s has its turn, and %s", got, next)
	}
	const line = "namespace=tenant service=large changes=3000 took=2s planning=1s kernel=1s beside=7ms"
	if log := b.log.String(); strings.Count(log, "\n") != 1 || !strings.Contains(log, line) {
		t.Errorf("the log:\n%s", log)
	}
	time.Sleep(b.rest("tenant", 0))
	synctest.Wait()
	if got := take(); got != "[tenant/large]" {
		t.Errorf("after the pause: %s", got)
	}
}

// TestAccountsAreBounded: ever new namespaces take no more memory, and those that matter stay.
func TestAccountsAreBounded(t *testing.T) {
	b := newBank()
	b.Beside("dear", time.Hour)
	b.charge(named("owes", "x"), time.Minute, 0, 0, 0)
	for i := range 3 * maxAccounts {
		b.charge(named(fmt.Sprint("n", i), "x"), time.Microsecond, 0, 0, time.Second)
	}
	if len(b.of) > maxAccounts || b.of["dear"] == nil || b.of["owes"] == nil || b.Seconds()["dear"] != 3600 {
		t.Errorf("%d accounts", len(b.of))
	}
}

// TestChargeAllocatesNothing: a pass with a small change costs no memory.
func TestChargeAllocatesNothing(t *testing.T) {
	b, name := newBank(), named("shop", "web")
	n := serviceport.Counts{serviceport.Slot: 2}
	d := Draft{Costs: map[state.Name]Cost{name: {}}}
	changed := map[state.Name]serviceport.Counts{name: n}
	if got := testing.AllocsPerRun(100, func() {
		d.Costs[name] = Cost{Planning: 20 * time.Microsecond}
		b.Charge(&d, &dataplane.Result{Changed: changed, Counts: n}, new(dataplane.Waiting), 100*time.Microsecond, b.begin)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

// TestPrices: whatever the kernel's own prices are, transactions of several kinds teach them, although each takes longer or shorter
// than it should.
func TestPrices(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		real, p := usual(), usual()
		for kind := range real {
			real[kind] *= 0.25 + 4*r.Float64()
		}
		random := func() (c serviceport.Counts) {
			for kind, most := range [...]int{20_000, 8000, 60, 400} {
				if r.IntN(3) == 0 {
					c[kind] = int32(r.IntN(most))
				}
			}
			return c
		}
		for range 400 {
			c := random()
			took := time.Duration(real.of(&c) * (0.9 + 0.2*r.Float64()))
			if r.IntN(20) == 0 {
				took *= 3 // something else kept the thread busy
			}
			p.learn(&c, p.of(&c), took)
		}
		for kind := range real {
			if ratio := p[kind] / real[kind]; ratio < 0.5 || ratio > 2 {
				t.Errorf("seed %d: kind %d costs %.0f, learned %.0f", seed, kind, real[kind], p[kind])
			}
		}
	}
}

// TestOneTransactionTeachesMost: a large one of one kind halves the error, and brief ones change nothing.
func TestOneTransactionTeachesMost(t *testing.T) {
	p := usual()
	brief := serviceport.Counts{serviceport.Key: 1}
	if p.learn(&brief, p.of(&brief), 900*time.Microsecond); p != usual() {
		t.Errorf("a brief transaction taught %v", p)
	}
	big := serviceport.Counts{serviceport.Slot: 50_000}
	p.learn(&big, p.of(&big), 50_000*5*time.Microsecond)
	if got := p[serviceport.Slot]; got < 3400 || got > 5000 {
		t.Errorf("a slot costs 5,000, learned %.0f", got)
	}
}

// TestPiecesCountTogether: what one pass leaves for the next ones costs whoever asked for it. Pieces that are too small to count
// alone count together, and so the namespace waits as if all had been one transaction.
func TestPiecesCountTogether(t *testing.T) {
	const pieces, each = 20, 600
	tenant, other := named("tenant", "large"), named("shop", "web")
	b := newBank()
	asked := Draft{
		Plans: map[state.Name]Planned{tenant: {}, other: {}},
		Costs: map[state.Name]Cost{tenant: {}}, Cause: map[state.Name]state.Name{tenant: {}, other: tenant},
	}
	var waiting dataplane.Waiting
	pauses := 0
	for i := range pieces {
		waiting.Set(tenant, i < pieces-1)
		waiting.Set(other, i < pieces-1)
		d := Draft{Costs: map[state.Name]Cost{}, Cause: map[state.Name]state.Name{}}
		if i == 0 {
			d = asked
		}
		n := serviceport.Counts{serviceport.Slot: each}
		r := dataplane.Result{Counts: n, Changed: map[state.Name]serviceport.Counts{tenant: n}}
		if i%2 == 1 { // the plan of another Service that the change concerns
			r.Changed = map[state.Name]serviceport.Counts{other: n}
		}
		if i == pieces-1 {
			r.Ended = []state.Name{tenant, other}
		}
		pauses += b.Charge(&d, &r, &waiting, time.Millisecond, b.begin)
	}
	if of := b.of["tenant"]; of.Changes != pieces*each || pauses != 1 || b.of["shop"] != nil || len(b.payers) > 0 || of.service != "" {
		t.Errorf("%d of %d changes count, %d pauses, others pay %v, %d Services are left", of.Changes, pieces*each, pauses, b.of["shop"], len(b.payers))
	}
}
