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

// TestPackageComments checks every package of the module. The package comment stands in doc.go, and it lists the files
// of the package: every file that it names exists, and it names every file. Tests need not be listed. A package of a
// single file may have its comment there.
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

// TestDocumentsNameWhatExists checks the Markdown files of the repository. Relative links, their headings and the paths of files
// in back quotes must exist, as must the tests and the targets of make that a document names.
func TestDocumentsNameWhatExists(t *testing.T) {
	tests, targets := testNames(t), makeTargets(t)
	for _, document := range documents(t) {
		t.Run(document, func(t *testing.T) {
			text := readText(t, filepath.Join("..", document))
			checkLinks(t, document, text)
			for _, path := range quotedPaths(text) {
				if !exists(path) && !exists(filepath.Join(filepath.Dir(document), path)) {
					t.Errorf("%s does not exist", path)
				}
			}
			for _, match := range regexp.MustCompile("`(Test[A-Z]\\w*)`").FindAllStringSubmatch(text, -1) {
				if !tests[match[1]] {
					t.Errorf("there is no test %s", match[1])
				}
			}
			for _, match := range regexp.MustCompile("(?m)(?:`|^    )make ([a-z][a-z0-9-]*)").FindAllStringSubmatch(text, -1) {
				if !targets[match[1]] {
					t.Errorf("the Makefile has no target %s", match[1])
				}
			}
		})
	}
}

// documents lists the Markdown files of the repository.
func documents(t *testing.T) (list []string) {
	t.Helper()
	walk(t, func(path string) {
		if strings.HasSuffix(path, ".md") {
			list = append(list, path)
		}
	})
	if len(list) < 3 {
		t.Fatalf("only %d documents: this test looks in the wrong place", len(list))
	}
	return list
}

// checkLinks checks that the files and the headings exist to which a document links.
func checkLinks(t *testing.T, document, text string) {
	t.Helper()
	for _, match := range regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`).FindAllStringSubmatch(text, -1) {
		path, anchor := filepath.Join(filepath.Dir(document), match[1]), strings.TrimPrefix(match[2], "#")
		if match[1] == "" {
			path = document
		}
		switch {
		case !exists(path):
			t.Errorf("the link to %s leads nowhere", match[1])
		case anchor != "" && !slices.Contains(anchors(readText(t, filepath.Join("..", path))), anchor):
			t.Errorf("%s has no heading #%s", path, anchor)
		}
	}
}

// anchors returns the names that GitHub gives to the headings of a document.
func anchors(text string) (list []string) {
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\w\- ]`).ReplaceAllString(strings.ToLower(match[1]), "")
		list = append(list, strings.ReplaceAll(name, " ", "-"))
	}
	return list
}

// quotedPaths returns the files in back quotes that are named with their folder.
func quotedPaths(text string) (paths []string) {
	quoted := regexp.MustCompile("`([a-z0-9][\\w.-]*(?:/[\\w.-]+)+\\.(?:go|md|txt|yaml|sh|service|svg))`")
	for _, match := range quoted.FindAllStringSubmatch(text, -1) {
		paths = append(paths, match[1])
	}
	return paths
}

func exists(path string) bool {
	_, err := os.Stat(filepath.Join("..", path))
	return err == nil
}

// testNames returns the names of all tests of the module.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	walk(t, func(path string) {
		if !strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(readText(t, filepath.Join("..", path)), -1) {
			names[match[1]] = true
		}
	})
	return names
}

func makeTargets(t *testing.T) map[string]bool {
	t.Helper()
	targets := map[string]bool{}
	for _, match := range regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`).FindAllStringSubmatch(readText(t, "../Makefile"), -1) {
		targets[match[1]] = true
	}
	return targets
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// walk calls visit with the path of every file of the repository, caches and the repository of git itself excluded.
func walk(t *testing.T, visit func(path string)) {
	t.Helper()
	err := fs.WalkDir(os.DirFS(".."), ".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", ".cache", "bin"}, path):
			return fs.SkipDir
		case !entry.IsDir():
			visit(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDocumentsAreShort holds the documents that newcomers read first to a length that they do read. What is too long for
// them has a place in the documents of the folders.
func TestDocumentsAreShort(t *testing.T) {
	for document, most := range map[string]int{"../README.md": 220, "README.md": 300} {
		if lines := strings.Count(readText(t, document), "\n"); lines > most {
			t.Errorf("%s has %d lines, want at most %d", document, lines, most)
		}
	}
}
