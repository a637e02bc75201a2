package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// guard matches the last cell of a row of BUGS.md: a package and a test.
var guard = regexp.MustCompile("(?m)\\| `([a-z0-9/]+)` `((?:Test|Fuzz)\\w+)` \\|$")

// TestGuardsOfBugs checks that each test that BUGS.md names as a guard exists.
func TestGuardsOfBugs(t *testing.T) {
	text, err := os.ReadFile("BUGS.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := guard.FindAllStringSubmatch(string(text), -1)
	if len(rows) < 40 {
		t.Fatalf("only %d rows of BUGS.md name a guard", len(rows))
	}
	for _, row := range rows {
		if !hasTest(t, row[1], row[2]) {
			t.Errorf("%s has no %s: BUGS.md needs the test that guards the bug now", row[1], row[2])
		}
	}
}

// hasTest reports whether a package has a test or fuzz target of that name, with whatever build tags.
func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	function := regexp.MustCompile(`(?m)^func ` + name + `\(`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if function.Match(text) {
			return true
		}
	}
	return false
}
