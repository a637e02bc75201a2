package e2e

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/e2e/scenario"
)

var update = flag.Bool("update", false, "write the table of differences in README.md anew")

// TestReadme: the tables of differences are those of the scenarios.
func TestReadme(t *testing.T) {
	list, err := scenario.Load(os.DirFS("scenarios"))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"differences": scenario.Differences(list), "ipvs": scenario.DifferencesOfIPVS(list)} {
		t.Run(name, func(t *testing.T) {
			checkTable(t, fmt.Sprintf("<!-- %s: begin -->\n", name), fmt.Sprintf("<!-- %s: end -->\n", name), want)
		})
	}
}

// checkTable compares the part of README.md between two markers.
func checkTable(t *testing.T, tableBegin, tableEnd, want string) {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	head, rest, begins := strings.Cut(string(text), tableBegin)
	table, tail, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("README.md has no %q before %q", tableBegin, tableEnd)
	}
	if *update {
		if err := os.WriteFile("README.md", []byte(head+tableBegin+want+tableEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(table, "\n")); diff != "" {
		t.Errorf("README.md is not current; run: go test ./e2e -update (- scenarios, + README.md)\n%s", diff)
	}
}

// TestReadmeExample: the scenario in README.md that shows how to write one can be read.
func TestReadmeExample(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	inside := false
	for _, line := range strings.Split(string(text), "\n") {
		code, indented := strings.CutPrefix(line, "    ")
		inside = indented && (inside || strings.HasPrefix(code, "== "))
		if inside {
			example.WriteString(code + "\n")
		}
	}
	list, err := scenario.Parse("README.md", example.String())
	if err != nil || len(list) != 1 || list[0].Probes() < 2 {
		t.Errorf("got %d scenarios, error %v, from:\n%s", len(list), err, example.String())
	}
}
