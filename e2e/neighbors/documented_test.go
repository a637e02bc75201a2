package neighbors

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// TestDocumentedNeighbors: the table of neighbors names each test of this package, and no other.
func TestDocumentedNeighbors(t *testing.T) {
	readme, err := os.ReadFile("../../config/deploy/README.md")
	lab.Must(t, err)
	_, section, found := strings.Cut(string(readme), "\n## Neighbors\n")
	if !found {
		t.Fatal("config/deploy/README.md has no section Neighbors")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var documented []string
	for _, m := range regexp.MustCompile("`(Test\\w+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, m[1])
	}
	files, err := filepath.Glob("*_test.go")
	lab.Must(t, err)
	var tests []string
	for _, file := range files {
		source, err := os.ReadFile(file)
		lab.Must(t, err)
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`).FindAllStringSubmatch(string(source), -1) {
			if m[1] != t.Name() {
				tests = append(tests, m[1])
			}
		}
	}
	slices.Sort(documented)
	slices.Sort(tests)
	if len(tests) == 0 || !slices.Equal(documented, tests) {
		t.Errorf("the table names the tests %q, and the package has %q", documented, tests)
	}
}
