package e2e

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestPackageComments checks every package of the module. The package comment stands in doc.go, and it lists the files of
// the package: every file that it names exists, and it names every file. Tests need not be listed. A package of a single
// file may have its comment there.
func TestPackageComments(t *testing.T) {
	for dir, files := range packages(t, "..") {
		t.Run(filepath.ToSlash(dir), func(t *testing.T) {
			if len(files) == 1 {
				if packageComment(t, filepath.Join(dir, files[0])) == "" {
					t.Errorf("%s has no package comment", files[0])
				}
				return
			}
			checkFileList(t, dir, files)
		})
	}
}

// packages returns the Go files of every directory below root that is part of the module, tests excluded.
func packages(t *testing.T, root string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && skipped(path, entry.Name()):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
			dir := filepath.Dir(path)
			found[dir] = append(found[dir], entry.Name())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) < 10 {
		t.Fatalf("only %d packages below %s: this test looks in the wrong place", len(found), root)
	}
	return found
}

// skipped reports whether a directory belongs to no package of this module.
func skipped(path, name string) bool {
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil || name == "testdata" || strings.HasPrefix(name, ".")
}

// fileName matches the name of a Go file without a folder before it.
var fileName = regexp.MustCompile(`(?:^|[\s(,;:])([a-z0-9_]+\.go)\b`)

func checkFileList(t *testing.T, dir string, files []string) {
	t.Helper()
	comment := packageComment(t, filepath.Join(dir, "doc.go"))
	if comment == "" {
		t.Fatal("doc.go has no package comment")
	}
	listed := map[string]bool{"doc.go": true}
	for _, match := range fileName.FindAllStringSubmatch(comment, -1) {
		listed[match[1]] = true
	}
	for _, name := range slices.Sorted(maps.Keys(listed)) {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("doc.go names %s, which does not exist", name)
		}
	}
	for _, name := range files {
		if !listed[name] {
			t.Errorf("doc.go does not name %s", name)
		}
		if name != "doc.go" && packageComment(t, filepath.Join(dir, name)) != "" {
			t.Errorf("%s has a package comment; it belongs in doc.go", name)
		}
	}
}

func packageComment(t *testing.T, path string) string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.PackageClauseOnly)
	if err != nil {
		t.Fatal(err)
	}
	return file.Doc.Text()
}
