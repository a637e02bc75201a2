package program

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables/expr"
	"github.com/verdict-proxy/verdict/nft/rule"
)

// kinds are the kinds of expressions in rules. What differs within a kind and came with different kernels or modules
// counts as a kind of its own.
func kinds(rules []rule.Rule, into map[string]bool) {
	for _, r := range rules {
		for _, e := range r.Exprs() {
			name := fmt.Sprintf("%T", e)
			switch e := e.(type) {
			case *expr.Dynset:
				name += fmt.Sprint(" ", e.Operation)
			case *expr.Numgen:
				name += fmt.Sprint(" ", e.Type)
			case *expr.Ct:
				name += fmt.Sprint(" ", e.Key)
			case *expr.NAT:
				name += fmt.Sprint(" ", e.Type)
			case *expr.Reject:
				name += fmt.Sprint(" ", e.Type)
			case *expr.Fib:
				name += fmt.Sprintf(" %+v", *e)
			}
			into[name] = true
		}
	}
}

// TestProbeKnowsTheProgram: every kind of expression and every shape of a set in the program is in the probe, too.
func TestProbeKnowsTheProgram(t *testing.T) {
	for _, f := range Families() {
		want, got := map[string]bool{}, map[string]bool{}
		p := Program{Family: f, PodInterface: "veth*", Loopback: true, IPVS: true, Unanswered: true, Refusing: true, Fleet: true}
		for _, c := range p.Chains() {
			kinds(c.Rules, want)
		}
		for _, m := range Methods() {
			kinds(p.TokenChain(Draw{m, 2}).Rules, want)
			for _, affinity := range []time.Duration{0, time.Hour} {
				kinds(p.ClassChain(Class{Draw: Draw{m, 2}, Affinity: affinity, local: true}).Rules, want)
			}
		}
		used := map[string]bool{}
		for _, x := range append(Features(), GoingBack()) {
			rules := x.Rules(Program{Family: f})
			kinds(rules, got)
			for _, r := range rules {
				sets, _ := r.References()
				for _, s := range sets {
					used[s] = true
				}
			}
		}
		if diff := cmp.Diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); diff != "" {
			t.Errorf("%s (- program, + probe):\n%s", f, diff)
		}
		checkSetShapes(t, f, used)
	}
}

// checkSetShapes: each combination of flags and counter that a set of the program has is among the sets in use.
func checkSetShapes(t *testing.T, f Family, used map[string]bool) {
	t.Helper()
	want, got := map[string]bool{}, map[string]bool{}
	for _, d := range (Program{Family: f}).Sets() {
		shape := fmt.Sprintf("flags %#x, counter %t", d.Flags(), d.Counter)
		want[shape] = true
		if used[d.Name] {
			got[shape] = true
		}
	}
	delete(want, "flags 0x0, counter true") // the flags of cluster-ips with the counter of services
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s sets (- program, + probe):\n%s", f, diff)
	}
}

// TestEstablishedPacketsPayNothing: packets of established connections meet as many expressions with DropInvalid as without:
// the first statement of each rule does not match them.
func TestEstablishedPacketsPayNothing(t *testing.T) {
	for _, f := range Families() {
		for _, hook := range []string{"filter-input", "filter-forward", "filter-output"} {
			count := func(p Program) (n int) {
				for _, r := range p.ChainNamed(hook).Rules {
					n += len(r[0].Exprs)
				}
				return n
			}
			off, on := Program{Family: f, PodCIDRs: true, Unanswered: true}, Program{Family: f, PodCIDRs: true, Unanswered: true, DropInvalid: true}
			if before, after := count(off), count(on); before == 0 || after != before {
				t.Errorf("%s %s: %d expressions without, %d with", f, hook, before, after)
			}
		}
	}
}

// TestEstablishedPackets counts the expressions that a packet of an established connection meets in the filter chains: each rule ends
// for it at its first comparison. Look-ups are for new connections, and a translated one has one.
func TestEstablishedPackets(t *testing.T) {
	for _, f := range Families() {
		p := Program{Family: f}
		for chain, want := range map[string]int{"filter-input": 3, "filter-forward": 3, "filter-output": 3} {
			n := 0
			for _, r := range p.ChainNamed(chain).Rules {
				n += 1 + slices.IndexFunc(r.Exprs(), func(e expr.Any) bool { _, compares := e.(*expr.Cmp); return compares })
			}
			if n != want {
				t.Errorf("%s, %s: %d expressions, want %d", f, chain, n, want)
			}
		}
		lookups := 0
		for _, r := range append(p.ChainNamed(newConnectionsChain).Rules, p.ChainNamed(newForwardedChain).Rules...) {
			if r[0].Text != rule.IsTranslated().Text {
				continue // ends before it looks anything up
			}
			for _, e := range r.Exprs() {
				if l, looks := e.(*expr.Lookup); looks && l.SetName == ServiceCIDRs.Name() {
					lookups++
					break // a translated connection is nowhere in these ranges
				}
			}
		}
		if lookups != 1 {
			t.Errorf("%s: a translated connection looks up %d ranges of Services", f, lookups)
		}
	}
}
