//go:build ipvs

package nft

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFastPathAsListed: nft lists the flowtable and the rules of the fast path as the engine prints them, and loads its own list of them.
// Only an emulated kernel has flowtables.
func TestFastPathAsListed(t *testing.T) {
	x := fastPathExample()
	ns := newNamespace(t)
	x.install(t, ns.engine(t))
	parts := func(text string) string {
		list := regexp.MustCompile(`(?ms)^\t(flowtable|chain (to-fast-path|filter-forward)) .*?^\t}`).FindAllString(text, -1)
		slices.Sort(list) // the order of chains differs
		return strings.Join(list, "\n")
	}
	want, got := parts(x.memory(t)), parts(ns.list(t))
	if diff := cmp.Diff(want, got); diff != "" || strings.Count(got, "flow add @fast-path") != 12 {
		t.Fatalf("the rules (- printed by the engine, + listed by nft):\n%s\n%s", diff, got)
	}
	alone := regexp.MustCompile(`(?m)^.*(@range-|jump|goto).*\n`).ReplaceAllString(got, "") // nft 1.0.6 loads no sets of port ranges into this kernel
	part := func(of string) string { return regexp.MustCompile(`(?s)\t`+of+`.*?\t}`).FindString(alone) + "\n" }
	newNamespace(t).load(t, `table ip verdict {
		set fast-path { type ipv4_addr . inet_proto . inet_service; }
		set fast-path-nodeports { type inet_proto . inet_service; }
		set fast-path-devices { type ifname; }
		set nodeport-addresses { type ipv4_addr; }
	`+part("flowtable")+part("chain to-fast-path")+"}")
}
