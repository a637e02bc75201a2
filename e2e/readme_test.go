package e2e

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/e2e/scenario"
)

var update = flag.Bool("update", false, "write the generated tables of README.md and UPSTREAM.md")

// load reads the scenarios of this repository.
func load(t *testing.T) []*scenario.Scenario {
	t.Helper()
	list, err := scenario.Load(os.DirFS("scenarios"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestGeneratedTables compares the tables of verbs and of differences with the language and with the scenarios.
func TestGeneratedTables(t *testing.T) {
	list := load(t)
	for name, table := range map[string]struct{ file, want string }{
		"changes":     {"README.md", scenario.Reference(scenario.Change, scenario.Settled)},
		"checks":      {"README.md", scenario.Reference(scenario.Check)},
		"differences": {"UPSTREAM.md", scenario.Differences(list)},
		"ipvs":        {"UPSTREAM.md", scenario.DifferencesOfIPVS(list)},
	} {
		t.Run(name, func(t *testing.T) {
			checkTable(t, table.file, fmt.Sprintf("<!-- %s: begin -->\n", name), fmt.Sprintf("<!-- %s: end -->\n", name), table.want)
		})
	}
}

// checkTable compares the part of a document between two markers.
func checkTable(t *testing.T, file, tableBegin, tableEnd, want string) {
	t.Helper()
	head, rest, begins := strings.Cut(readText(t, file), tableBegin)
	table, tail, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		t.Fatalf("%s has no %q before %q", file, tableBegin, tableEnd)
	}
	if *update {
		if err := os.WriteFile(file, []byte(head+tableBegin+want+tableEnd+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(table, "\n")); diff != "" {
		t.Errorf("%s is not current; run: go test ./e2e -update (- generated, + %s)\n%s", file, file, diff)
	}
}

// TestUpstreamNamesScenarios expects that every scenario which UPSTREAM.md quotes exists.
func TestUpstreamNamesScenarios(t *testing.T) {
	exists := map[string]bool{}
	for _, s := range load(t) {
		exists[s.File+": "+s.Name] = true
	}
	quotes := regexp.MustCompile("`([a-z-]+)`: \"([^\"]+)\"").FindAllStringSubmatch(readText(t, "UPSTREAM.md"), -1)
	if len(quotes) < 20 {
		t.Errorf("UPSTREAM.md quotes only %d scenarios: has the form of the quotes changed?", len(quotes))
	}
	for _, q := range quotes {
		if name := q[1] + ": " + q[2]; !exists[name] {
			t.Errorf("UPSTREAM.md quotes %q, which is not a scenario", name)
		}
	}
}

// TestReadmeExample parses the scenario with which README.md shows how to write one.
func TestReadmeExample(t *testing.T) {
	var example strings.Builder
	inside := false
	for _, line := range strings.Split(readText(t, "README.md"), "\n") {
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
