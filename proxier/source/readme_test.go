package source

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAnnotationTable: config/README.md describes exactly the annotations that this package reads.
func TestAnnotationTable(t *testing.T) {
	text, err := os.ReadFile("../../config/README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, found := strings.Cut(string(text), "\n| annotation | on | values |\n")
	if !found {
		t.Fatal("config/README.md has no table of annotations")
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var documented []string
	for line := range strings.Lines(table) {
		for _, match := range regexp.MustCompile("`([a-z.-]+/[a-z.-]+)`").FindAllStringSubmatch(strings.Split(line, "|")[1], -1) {
			documented = append(documented, match[1])
		}
	}
	slices.Sort(documented)
	if diff := cmp.Diff(annotationConstants(t), documented); diff != "" {
		t.Errorf("annotations (- program, + config/README.md):\n%s", diff)
	}
}

// annotationConstants returns the values of the constants of this package whose names begin with "annotation".
func annotationConstants(t *testing.T) (list []string) {
	t.Helper()
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok || !strings.HasPrefix(spec.Names[0].Name, "annotation") || len(spec.Values) != 1 {
				return true
			}
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				value, err := strconv.Unquote(literal.Value)
				if err != nil {
					t.Fatal(err)
				}
				list = append(list, value)
			}
			return true
		})
	}
	slices.Sort(list)
	return list
}
