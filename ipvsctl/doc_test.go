package ipvsctl

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocListsTheFiles: the package comment lists every file of the package, and only those.
func TestDocListsTheFiles(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	must(t, err)
	var listed []string
	for _, match := range regexp.MustCompile(`(?m)^//\t([a-z]+\.go) +\S`).FindAllStringSubmatch(string(text), -1) {
		listed = append(listed, match[1])
	}
	files, err := filepath.Glob("*.go")
	must(t, err)
	files = slices.DeleteFunc(files, func(name string) bool {
		return name == "doc.go" || strings.HasSuffix(name, "_test.go")
	})
	slices.Sort(listed)
	if !slices.Equal(listed, files) {
		t.Errorf("doc.go lists\n%v, the package has\n%v", listed, files)
	}
}
