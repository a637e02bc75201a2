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

var update = flag.Bool("update", false, "write the generated tables of README.md")

// load reads the scenarios of this repository.
func load(t *testing.T) []*scenario.Scenario {
	t.Helper()
	list, err := scenario.Load(os.DirFS("scenarios"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReadme compares the tables of verbs and of differences with the language and with the scenarios.
func TestReadme(t *testing.T) {
	list := load(t)
	for name, want := range map[string]string{
		"changes":     scenario.Reference(scenario.Change, scenario.Settled),
		"checks":      scenario.Reference(scenario.Check),
		"differences": scenario.Differences(list),
		"ipvs":        scenario.DifferencesOfIPVS(list),
	} {
		t.Run(name, func(t *testing.T) {
			checkTable(t, fmt.Sprintf("<!-- %s: begin -->\n", name), fmt.Sprintf("<!-- %s: end -->\n", name), want)
		})
	}
}

// checkTable compares the part of README.md between two markers.
func checkTable(t *testing.T, tableBegin, tableEnd, want string) {
	t.Helper()
	head, rest, begins := strings.Cut(readme(t), tableBegin)
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
		t.Errorf("README.md is not current; run: go test ./e2e -update (- generated, + README.md)\n%s", diff)
	}
}

// TestReadmeNamesScenarios expects that every scenario which README.md quotes exists.
func TestReadmeNamesScenarios(t *testing.T) {
	exists := map[string]bool{}
	for _, s := range load(t) {
		exists[s.File+": "+s.Name] = true
	}
	quotes := regexp.MustCompile("`([a-z-]+)`: \"([^\"]+)\"").FindAllStringSubmatch(readme(t), -1)
	if len(quotes) < 20 {
		t.Errorf("README.md quotes only %d scenarios: has the form of the quotes changed?", len(quotes))
	}
	for _, q := range quotes {
		if name := q[1] + ": " + q[2]; !exists[name] {
			t.Errorf("README.md quotes %q, which is not a scenario", name)
		}
	}
}

// TestReadmeExample parses the scenario with which README.md shows how to write one.
func TestReadmeExample(t *testing.T) {
	var example strings.Builder
	inside := false
	for _, line := range strings.Split(readme(t), "\n") {
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
