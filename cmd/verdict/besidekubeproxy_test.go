package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// upstreamFlag is a flag of kube-proxy.
type upstreamFlag struct{ name, kind, fallback string }

// flagsOfKubeProxy reads what TestRecordedFlags of package deploy has recorded from the help of kube-proxy.
func flagsOfKubeProxy(t *testing.T) (list []upstreamFlag) {
	t.Helper()
	text, err := os.ReadFile("testdata/kube-proxy-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := append(strings.Fields(line), "")
		list = append(list, upstreamFlag{name: words[0], kind: words[1], fallback: words[2]})
	}
	if len(list) < 50 {
		t.Fatalf("only %d flags are recorded", len(list))
	}
	return list
}

// TestFlagsOfKubeProxy: the table has every flag of kube-proxy, in order, with its default, and says what the program
// does with it.
func TestFlagsOfKubeProxy(t *testing.T) {
	rows := tableOf(t, besideKubeProxy, "flag of kube-proxy | default | in Verdict | remark")
	run := newRun()
	run.InitDefaultHelpFlag()
	run.InitDefaultVersionFlag()
	for i, want := range flagsOfKubeProxy(t) {
		if i >= len(rows) || strings.TrimLeft(literals(rows[i][0])[0], "-") != want.name {
			t.Fatalf("row %d must be about --%s", i+1, want.name)
		}
		row := rows[i]
		if fallback := strings.Join(literals(row[1]), " "); fallback != want.fallback {
			t.Errorf("--%s: the default of kube-proxy is %q, the table says %q", want.name, want.fallback, fallback)
		}
		checkFlag(t, &want, run.Flags(), strings.TrimSpace(row[2]), strings.TrimSpace(row[3]))
	}
}

// checkFlag compares the last two cells of a row with the program.
func checkFlag(t *testing.T, of *upstreamFlag, flags *pflag.FlagSet, class, remark string) {
	t.Helper()
	f := flags.Lookup(of.name)
	if f == nil {
		t.Errorf("verdict run has no flag --%s", of.name)
		return
	}
	why, ignored := strings.CutPrefix(f.Usage, "has no effect: ")
	switch {
	case ignored:
		if class != "no effect" || remark != why {
			t.Errorf("--%s has no effect, because %s; the table says %q, %q", of.name, why, class, remark)
		}
	case f.Hidden:
		if want := strings.Replace(f.Usage, "sets ", "sets `", 1) + "`"; class != want {
			t.Errorf("--%s %s; the table says %q", of.name, want, class)
		}
	case class != "same":
		t.Errorf("--%s has an effect of its own; the table says %q", of.name, class)
	default:
		checkDefault(t, of, f, remark)
	}
}

// checkDefault wants the remark to name a default that differs from that of kube-proxy.
func checkDefault(t *testing.T, of *upstreamFlag, f *pflag.Flag, remark string) {
	t.Helper()
	ours := strings.Trim(f.DefValue, "[]")
	zero := func(s string) bool { return slices.Contains([]string{"", "0", "0s", "false", "0.0.0.0"}, s) }
	differs := ours != of.fallback && (!zero(ours) || !zero(of.fallback))
	if named := strings.Contains(strings.ToLower(remark), "default here: `"+strings.ToLower(ours)+"`"); differs != named && of.name != "nodeport-addresses" {
		t.Errorf("--%s: the defaults %q and %q differ: %t; the remark says so: %t", of.name, of.fallback, ours, differs, named)
	}
}
