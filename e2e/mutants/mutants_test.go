package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// module writes a module with a package of this source and this test.
func module(t *testing.T, source, test string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module example\n\ngo 1.26\n", "calc.go": source, "calc_test.go": test} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// source has one place for each operator.
const source = `package calc

type verdict uint8

const (
	drop verdict = iota
	accept
)

const (
	first  = 1
	second = 2
)

type limits struct{ most int }

func wait(a, b chan int) {
	select {
	case <-a:
	case <-b:
	}
}

type calc struct{ total int }

func (c *calc) add(n int, l limits) verdict {
	if n < l.most {
		c.total += n
		return accept
	}
	return drop
}

func defaults() limits { return limits{most: 10} }

func parts() []string { return []string{"a", "b"} }

func join(words ...string) (n int) { return len(words) }

func both(a, b int) int { return 2*a + b }

func use(a, b int, flags uint8) (int, uint8) { return both(a, b) + join("x", "y"), flags | second }
`

const strongTest = `package calc

import (
	"slices"
	"testing"
)

func TestAll(t *testing.T) {
	c := calc{}
	if c.add(9, defaults()) != accept || c.total != 9 || c.add(10, defaults()) != drop || c.total != 9 {
		t.Error(c)
	}
	if !slices.Equal(parts(), []string{"a", "b"}) {
		t.Error(parts())
	}
	if n, f := use(1, 5, 1); n != 9 || f != 3 {
		t.Error(n, f)
	}
}
`

func runOn(t *testing.T, dir string, change func(*options)) string {
	t.Helper()
	var out bytes.Buffer
	o := options{root: dir, n: 1000, seed: 1, targets: "./...", within: time.Hour, patience: 10 * time.Second, out: &out}
	if change != nil {
		change(&o)
	}
	if err := run(o); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// found lists the mutants of a package with this source.
func found(t *testing.T, source string) (all string) {
	t.Helper()
	_, mutants, err := find(module(t, source, "package calc\n"), []string{"./..."})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutants {
		all += m.String() + "\n"
	}
	return all
}

// TestNoise expects no mutant of what only writes the log, reserves memory or formats text.
func TestNoise(t *testing.T) {
	all := found(t, `package calc

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

func quiet(log *slog.Logger, n int, list []int) ([]int, map[int]int, error) {
	log.Info("a number", "n", n+1)
	slog.Warn("a number", "n", 2)
	var b strings.Builder
	b.Grow(n + 3)
	list = slices.Grow(list, n+4)
	_ = make([]int, 0, n+5)
	return list, make(map[int]int, n+6), fmt.Errorf("no %d of %d", n, len(list))
}

type both struct{ a, b int }

func same(a, b []int) bool { return slices.Equal(a, b) }

func zero() both { return both{a: 0} }

func order(a, b both) int {
	if a.b < b.b {
		return 1
	}
	return -1
}

func loud(n int) (chan int, []int) { return make(chan int, n+7), make([]int, n+8) }
`)
	want := []string{"off by one: 0", "removed statement: _ = make", "swapped + to -: n+7", "off by one: 7", "swapped + to -: n+8", "off by one: 8",
		"off by one: 0", "negated condition: a.b < b.b", "swapped < to <=: a.b < b.b", "swapped < to >: a.b < b.b"}
	for _, w := range want {
		if !strings.Contains(all, ": "+w) {
			t.Errorf("no mutant %q in\n%s", w, all)
		}
	}
	if strings.Count(all, "\n") != len(want) {
		t.Errorf("%d mutants expected in\n%s", len(want), all)
	}
}

// TestOperators expects a mutant of each kind.
func TestOperators(t *testing.T) {
	all := found(t, source)
	for _, want := range []string{
		"negated condition: n < l.most", "swapped < to <=: n < l.most", "swapped < to >: n < l.most", "swapped + to -: 2*a + b",
		"removed statement: c.total += n", "off by one: 10", "lost field most: 10", `lost element: []string{"a", "b"}`,
		`lost argument: "x", "y"`, "swapped constant to drop: accept", "swapped arguments: a, b", "lost flag: flags | second",
	} {
		if !strings.Contains(all, ": "+want+"\n") {
			t.Errorf("no mutant %q in\n%s", want, all)
		}
	}
}

// TestKills expects that a test that looks at everything kills all mutants, and that one that looks at nothing kills none.
func TestKills(t *testing.T) {
	if out := runOn(t, module(t, source, strongTest), nil); !strings.Contains(out, "(100.0 %)") {
		t.Errorf("a strong test:\n%s", out)
	}
	weak := "package calc\n\nimport \"testing\"\n\nfunc TestNothing(*testing.T) { parts() }\n"
	out := runOn(t, module(t, source, weak), nil)
	if !strings.Contains(out, "(0.0 %)") || !strings.Contains(out, "\nSURVIVED ") || !strings.Contains(out, "\nUNREACHED ") {
		t.Errorf("a weak test:\n%s", out)
	}
	dir, file := module(t, source, weak), filepath.Join(t.TempDir(), "out")
	_, rest, _ := strings.Cut(out, "SURVIVED ")
	first, _, _ := strings.Cut(rest, "\n")
	if err := os.WriteFile(file, []byte("SURVIVED "+first+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if again := runOn(t, dir, func(o *options) { o.again = file }); !strings.Contains(again, "killed 0 of 1 ") {
		t.Errorf("only one of them again:\n%s", again)
	}
}

// TestEndless expects that a mutant that makes a loop endless counts as killed.
func TestEndless(t *testing.T) {
	loop := "package calc\n\nfunc count() (n int) {\n\tfor n < 3 {\n\t\tn += 2\n\t}\n\treturn n\n}\n"
	test := "package calc\n\nimport \"testing\"\n\nfunc TestCount(t *testing.T) {\n\tif count() != 4 {\n\t\tt.Error(count())\n\t}\n}\n"
	out := runOn(t, module(t, loop, test), func(o *options) { o.only, o.patience = "removed", time.Second })
	if !strings.Contains(out, "killed 1 of 1") {
		t.Error(out)
	}
}
