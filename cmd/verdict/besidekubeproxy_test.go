package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/cmd/verdict/kubeproxyconfig"
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
	why := bindIgnored(pflag.NewFlagSet("ignored", pflag.ContinueOnError)).why
	for i, want := range flagsOfKubeProxy(t) {
		if i >= len(rows) || strings.TrimLeft(literals(rows[i][0])[0], "-") != want.name {
			t.Fatalf("row %d must be about --%s", i+1, want.name)
		}
		row := rows[i]
		if fallback := strings.Join(literals(row[1]), " "); fallback != want.fallback {
			t.Errorf("--%s: the default of kube-proxy is %q, the table says %q", want.name, want.fallback, fallback)
		}
		checkFlag(t, &want, run.Flags(), why[want.name], strings.TrimSpace(row[2]), strings.TrimSpace(row[3]))
	}
}

// checkFlag compares the last two cells of a row with the program.
func checkFlag(t *testing.T, of *upstreamFlag, flags *pflag.FlagSet, why, class, remark string) {
	t.Helper()
	f := flags.Lookup(of.name)
	if f == nil {
		t.Errorf("verdict run has no flag --%s", of.name)
		return
	}
	switch {
	case why != "":
		if class != "no effect" || remark != why {
			t.Errorf("--%s has no effect, because %s; the table says %q, %q", of.name, why, class, remark)
		}
	case f.Hidden:
		if want := "sets `--" + target(of.name) + "`"; class != want {
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

// target is the flag that an alias sets.
func target(name string) string {
	for _, a := range aliases {
		if a.name == name {
			return a.flag
		}
	}
	return ""
}

// TestFieldsOfKubeProxy compares the table of fields with the program. TestEveryFieldIsInTheTable of package
// kubeproxyconfig compares the program with the type of kube-proxy.
func TestFieldsOfKubeProxy(t *testing.T) {
	const head = "| field | flag | in mode | a change | without effect, because |\n|---|---|---|---|---|\n"
	var rows strings.Builder
	for _, f := range kubeproxyconfig.Fields() {
		name, change := "", ""
		if f.Flag != "" {
			name, change = "`--"+f.Flag+"`", "restart"
			if len(f.Flag) == 1 {
				name = "`-" + f.Flag + "`"
			}
		}
		if slices.Contains(liveFlags, f.Flag) {
			change = "live"
		}
		if strings.HasPrefix(f.Flag, "conntrack-") || slices.Contains(byInitContainer, f.Flag) {
			change += ", rollout"
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s | %s |\n", f.Path, name, strings.Join(f.Modes, ", "), change, f.Why)
	}
	text, err := os.ReadFile(besideKubeProxy)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), head)
	have, after, ends := strings.Cut(rest, "\n## ")
	if !found || !ends {
		t.Fatalf("%s has no table of fields", besideKubeProxy)
	}
	if *update {
		if err := os.WriteFile(besideKubeProxy, []byte(before+head+rows.String()+"\n## "+after), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if strings.TrimSpace(have) != strings.TrimSpace(rows.String()) {
		t.Error("the table of fields differs from the program; run this test with -update")
	}
}

// byInitContainer are the flags, besides those of connection tracking, of which the init container of the DaemonSet does a
// part. TestChangesThatNeedSysctls in config/deploy shows what becomes of a change.
var byInitContainer = []string{"proxy-mode", "nodeport-addresses", "iptables-localhost-nodeports", "ipvs-strict-arp"}

// TestLiveFlagsExist: each is the flag of a field, or what a field chooses.
func TestLiveFlagsExist(t *testing.T) {
	c := newCommandLine(pflag.NewFlagSet("test", pflag.ContinueOnError))
	for _, name := range liveFlags {
		if f := c.flags.Lookup(name); f == nil || f.Hidden {
			t.Errorf("there is no flag --%s", name)
		}
	}
}
