package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestWatchedPackages: "make test" runs each package whose code starts goroutines under the race detector.
func TestWatchedPackages(t *testing.T) {
	script, err := os.ReadFile("../.ci/test.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(script), "\nwatched=(")
	list, _, _ := strings.Cut(after, ")")
	patterns := strings.Fields(list)
	watched := func(dir string) bool {
		dir = "./" + strings.TrimPrefix(dir, "../")
		return slices.ContainsFunc(patterns, func(p string) bool {
			above, all := strings.CutSuffix(p, "/...")
			return dir == above || all && strings.HasPrefix(dir, above+"/")
		})
	}
	concurrent := 0
	for dir, files := range packages(t, "..") {
		for _, name := range files {
			at := firstGoroutine(t, filepath.Join(dir, name))
			if at == "" {
				continue
			}
			concurrent++
			if !watched(dir) {
				t.Errorf("%s starts a goroutine: add its package to 'watched' in .ci/test.sh", at)
			}
		}
	}
	if !found || concurrent < 10 {
		t.Errorf("%d files start goroutines, want more", concurrent)
	}
}

// firstGoroutine is where a file starts a goroutine, or empty.
func firstGoroutine(t *testing.T, path string) (at string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if at == "" && startsGoroutine(n) {
			at = files.Position(n.Pos()).String()
		}
		return true
	})
	return at
}

// startsGoroutine reports whether a node is a go statement or a call of a method Go, as sync.WaitGroup has.
func startsGoroutine(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		return true
	case *ast.CallExpr:
		method, ok := n.Fun.(*ast.SelectorExpr)
		return ok && method.Sel.Name == "Go"
	}
	return false
}
