package e2e

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// maySleep says which functions of tests sleep although nothing can be waited for, and why. A name is the folder and the
// function.
func maySleep() map[string]string {
	const (
		nothing  = "nothing may happen in this time; more time finds more"
		timeout  = "a timeout of the kernel must pass, and the kernel does not report it"
		pace     = "the pace of clients or of changes, which may be slower"
		traffic  = "clients connect in this time; the test expects none of them to fail, however many there are"
		measures = "a measurement lasts this long"
		slow     = "plays a slow part of the system"
	)
	return map[string]string{
		"cmd/verdict TestInterferenceIsOnlyReported": nothing,
		"config/deploy write":                        "the API server's timestamps have whole seconds, and the order of two objects must show in them",
		"e2e/bench firstAnswer":                      "the kernel frees the tables of earlier rounds, and does not report it",
		"e2e/bench idle":                             "each change is to meet an idle proxy",
		"e2e/bench inWorld":                          "the kernel frees the tables of earlier rounds, and does not report it",
		"e2e/benchupstream BenchmarkDaemons":         measures,
		"e2e/benchupstream firstSync":                measures,
		"e2e/benchupstream read":                     measures,
		"e2e/chaos connect":                          pace,
		"e2e/chaos edit":                             "gives the daemon time to follow the last changes; a measurement of the repair begins then",
		"e2e/chaos flaps":                            slow,
		"e2e/chaos keepOpen":                         pace,
		"e2e/chaos pause":                            slow,
		"e2e/chaos run":                              pace,
		"e2e/chaos soak":                             pace,
		"e2e/cluster deletePods":                     slow,
		"e2e/cluster rolloutsUnder":                  measures,
		"e2e/cluster vanish":                         measures,
		"e2e/deadnode BenchmarkIdle":                 measures,
		"e2e/deadnode busy":                          slow,
		"e2e/deadnode dies":                          traffic,
		"e2e/deadnode loadAround":                    traffic,
		"e2e/deadnode raise":                         nothing,
		"e2e/deadnode refusing":                      traffic,
		"e2e/deadnode startIdle":                     measures,
		"e2e/deadnode vanishUnder":                   measures,
		"e2e/fastpath TestStay":                      nothing,
		"e2e/flood TestChecksLeaveNoFlows":           nothing,
		"e2e/flood control":                          measures,
		"e2e/flood measureChecks":                    measures,
		"e2e/ipvs backendChanges":                    traffic,
		"e2e/ipvs endpointGoes":                      nothing,
		"e2e/ipvs localMoves":                        traffic,
		"e2e/ipvs topHasTheRates":                    "the kernel sums its counters up every two seconds, and does not report it",
		"e2e/ipvs restarts":                          traffic,
		"e2e/ipvs schedulerChanges":                  traffic,
		"e2e/ipvs takenKey":                          traffic,
		"e2e/takeover settle":                        traffic,
		"nft TestAffinityTimeout":                    timeout,
		"nft TestChurnUnderLoad":                     pace,
		"proxier Apply":                              slow,
		"proxier measureUnrelated":                   pace,
		"proxier/prober ask":                         pace,
		"proxier/prober do":                          nothing,
		"proxier/prober lateDNS":                     slow,
		"proxier/threadtime TestMeter":               "waiting is what it measures",
		"proxier/threadtime TestWaiting":             "waiting is what it measures",
		"proxier/state TestTogether":                 "gives a reader time to see what it must not see; the test passes without it, too",
	}
}

// poll is the longest pause of a loop that waits for something.
const poll = time.Second

// TestNoSleep expects tests to wait for what they need, and not for a time in which it has happened on a quiet machine. They
// may sleep on the fake clock of testing/synctest, and between two looks of a loop that waits.
func TestNoSleep(t *testing.T) {
	allowed, used := maySleep(), map[string]bool{}
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == ".cache" || d.Name() == ".git" || d.Name() == "node_modules"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		sleeps, err := findSleeps(path, nil)
		for _, s := range sleeps {
			name := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../") + " " + s.function
			used[name] = true
			if allowed[name] == "" {
				t.Errorf("%s: %s sleeps. Wait for what it needs, use testing/synctest, or give maySleep the reason for %q", s.at, s.function, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range allowed {
		if !used[name] {
			t.Errorf("maySleep has a reason for %q, which does not sleep", name)
		}
	}
}

// sleep is a place where a test sleeps.
type sleep struct {
	at       token.Position
	function string
}

// findSleeps lists the sleeps of a file that need a reason.
func findSleeps(path string, source any) (out []sleep, err error) {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, spec := range file.Imports {
		if spec.Path.Value == `"testing/synctest"` {
			return nil, nil
		}
	}
	for _, decl := range file.Decls {
		function := "(variable)"
		if f, ok := decl.(*ast.FuncDecl); ok {
			function = f.Name.Name
		}
		var around []ast.Node
		ast.Inspect(decl, func(n ast.Node) bool {
			if n == nil {
				around = around[:len(around)-1]
				return true
			}
			if d, ok := sleepsFor(n); ok && !polls(around, n, d) {
				out = append(out, sleep{fset.Position(n.Pos()), function})
			}
			around = append(around, n)
			return true
		})
	}
	return out, nil
}

// sleepsFor reports whether a node waits for a time: it calls time.Sleep, or receives from time.After outside of a select.
func sleepsFor(n ast.Node) (d ast.Expr, ok bool) {
	call, isCall := n.(*ast.CallExpr)
	name := "time.Sleep"
	if s, isStatement := n.(*ast.ExprStmt); isStatement {
		if receive, isReceive := s.X.(*ast.UnaryExpr); isReceive && receive.Op == token.ARROW {
			call, isCall = receive.X.(*ast.CallExpr)
			name = "time.After"
		}
	}
	if !isCall || len(call.Args) != 1 {
		return nil, false
	}
	f, isSelector := call.Fun.(*ast.SelectorExpr)
	if !isSelector {
		return nil, false
	}
	of, isName := f.X.(*ast.Ident)
	return call.Args[0], isName && of.Name+"."+f.Sel.Name == name
}

// polls reports whether a sleep is the pause of a loop that looks again and again, or one case of a select.
func polls(around []ast.Node, n ast.Node, d ast.Expr) bool {
	for i := len(around) - 1; i >= 0; i-- {
		switch loop := around[i].(type) {
		case *ast.CommClause:
			return loop.Comm == n
		case *ast.ForStmt:
			if loop.Post != nil && loop.Post.Pos() <= n.Pos() && n.End() <= loop.Post.End() {
				return true
			}
			pause, known := duration(d)
			return known && pause <= poll
		case *ast.FuncLit, *ast.RangeStmt:
			return false
		}
	}
	return false
}

// duration reads a constant such as 20 * time.Millisecond.
func duration(e ast.Expr) (time.Duration, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		n, err := strconv.Atoi(e.Value)
		return time.Duration(n), err == nil
	case *ast.SelectorExpr:
		d, ok := map[string]time.Duration{"Microsecond": time.Microsecond, "Millisecond": time.Millisecond, "Second": time.Second}[e.Sel.Name]
		return d, ok
	case *ast.BinaryExpr:
		x, okX := duration(e.X)
		y, okY := duration(e.Y)
		return x * y, okX && okY && e.Op == token.MUL
	}
	return 0, false
}

// TestFindsSleeps expects the rule to find what it forbids, and nothing else.
func TestFindsSleeps(t *testing.T) {
	for body, want := range map[string]int{
		"time.Sleep(time.Second)":                                               1,
		"go func() { time.Sleep(d) }()":                                         1,
		"<-time.After(time.Second)":                                             1,
		"for range 3 { time.Sleep(time.Millisecond) }":                          1,
		"for !done() { time.Sleep(2 * time.Second) }":                           1,
		"for !done() { time.Sleep(20 * time.Millisecond) }":                     0,
		"for end := late(); !done(); time.Sleep(5 * time.Second) { look(end) }": 0,
		"select { case <-c: case <-time.After(time.Second): }":                  0,
	} {
		got, err := findSleeps("x_test.go", fmt.Sprintf("package x\n\nfunc TestX() { %s }\n", body))
		if err != nil || len(got) != want {
			t.Errorf("%s: %d sleeps, %v; want %d", body, len(got), err, want)
		}
	}
}
