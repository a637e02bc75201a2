package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestFlagValuesAreCompleted: the shell offers the values that annotations and flags share.
func TestFlagValuesAreCompleted(t *testing.T) {
	for flag, want := range map[string]string{
		"outlier-detection": "off observe eject", "health-check": "off tcp http https dns", "default-scheduler": "rr mh random", "ipvs-scheduler": "rr mh",
	} {
		root, out := newRoot(), &strings.Builder{}
		root.SetOut(out)
		root.SetErr(io.Discard)
		root.SetArgs([]string{cobra.ShellCompRequestCmd, "run", "--" + flag, ""})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		offered := strings.Fields(out.String())
		for _, word := range strings.Fields(want) {
			if !slices.Contains(offered, word) {
				t.Errorf("--%s offers %q, without %s", flag, offered, word)
			}
		}
	}
}
