package e2e

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSequentialPackages checks the packages that "make test" runs without the race detector: their code starts no
// goroutine.
func TestSequentialPackages(t *testing.T) {
	script, err := os.ReadFile("../.ci/test.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, after, found := strings.Cut(string(script), "\nsequential=(")
	line, _, _ := strings.Cut(after, ")")
	checked := 0
	for _, pattern := range strings.Fields(line) {
		root := filepath.Clean(filepath.Join("..", strings.TrimSuffix(pattern, "/...")))
		for dir, files := range packages(t, "..") {
			if dir != root && !strings.HasPrefix(dir, root+string(filepath.Separator)) {
				continue
			}
			for _, name := range files {
				checked++
				checkSequential(t, filepath.Join(dir, name))
			}
		}
	}
	if !found || checked < 10 {
		t.Errorf("'sequential' in .ci/test.sh names packages with %d files, want more", checked)
	}
}

func checkSequential(t *testing.T, path string) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if startsGoroutine(n) {
			t.Errorf("%s starts a goroutine: remove its package from 'sequential' in .ci/test.sh", files.Position(n.Pos()))
		}
		return true
	})
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
