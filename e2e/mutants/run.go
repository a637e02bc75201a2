package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/tools/go/packages"

	"github.com/verdict-proxy/verdict/e2e/program"
)

// suite is a choice of tests: those of "make check" or of "make test", those of the changed packages and of the packages in
// the folders above, or those of the other packages that import them.
type suite struct {
	name string
	tags string
	own  bool
}

// binary is the compiled tests of a package.
type binary struct {
	pkg   string
	dir   string
	file  string
	tests []*test // the fastest first
}

// test is one test function: the mutants that it reaches, and how long it takes without one.
type test struct {
	name    string
	reaches map[int]bool
	took    time.Duration
	cpu     time.Duration // of took
}

// runner builds tests and runs them.
type runner struct {
	root, work string
	overlay    string
	suite      suite
	out        io.Writer
	patience   time.Duration
	skip       string
	verdict    string // the program with all mutants, for tests that start it
	binaries   []*binary
	unreached  int // mutants that survived because no test reaches them
}

// build compiles the tests of the packages that import one of the targets, and runs each test once without a mutant.
func (r *runner) build(targets []string) error {
	packages, err := r.dependents(targets)
	if err != nil {
		return err
	}
	if err := r.buildProgram(); err != nil {
		return err
	}
	for _, b := range packages {
		b.file = filepath.Join(r.work, strings.ReplaceAll(b.pkg, "/", "_")+"-"+r.suite.tags+".test")
		args := []string{"test", "-c", "-vet=off", "-overlay", r.overlay, "-tags", r.suite.tags, "-o", b.file, b.pkg}
		if _, err := command(r.root, []string{"CGO_ENABLED=0"}, "go", args...); err != nil {
			return fmt.Errorf("build the tests of %s with mutants: %w", b.pkg, err)
		}
		if _, err := os.Stat(b.file); err != nil {
			continue // no tests with these tags
		}
		if err := r.explore(b); err != nil {
			return err
		}
		r.binaries = append(r.binaries, b)
	}
	return nil
}

// buildProgram compiles verdict, for a module that has it.
func (r *runner) buildProgram() error {
	_, err := os.Stat(filepath.Join(r.root, "cmd/verdict"))
	if r.suite.own || errors.Is(err, os.ErrNotExist) {
		return nil
	}
	r.verdict = filepath.Join(r.work, "verdict")
	args := []string{"build", "-overlay", r.overlay, "-ldflags", "-X main.version=" + program.Version, "-o", r.verdict, "./cmd/verdict"}
	if _, err = command(r.root, []string{"CGO_ENABLED=0"}, "go", args...); err != nil {
		return fmt.Errorf("build verdict with mutants: %w", err)
	}
	return nil
}

// explore runs each test alone to learn which mutants it reaches. A test that fails without a mutant is left out, because
// its failures say nothing.
func (r *runner) explore(b *binary) error {
	names, err := command(b.dir, nil, b.file, "-test.list", "^(Test|Example|Fuzz)")
	if err != nil {
		return err
	}
	start, all := time.Now(), map[int]bool{}
	for name := range strings.FieldsSeq(string(names)) {
		reached := filepath.Join(r.work, "reached")
		_ = os.Remove(reached)
		t := &test{name: name, cpu: 10 * time.Minute} // not known yet
		begin := time.Now()
		out, cpu, err := r.execute(b, []*test{t}, 10*time.Minute, "MUTANTS_REACHED="+reached)
		t.took, t.cpu = time.Since(begin), cpu
		if err != nil {
			log.Printf("%s %s fails without a mutant and is left out: %v\n%s", b.pkg, name, err, tail(out, 20))
			continue
		}
		if t.reaches, err = numbers(reached); err != nil {
			return err
		}
		maps.Copy(all, t.reaches)
		b.tests = append(b.tests, t)
	}
	slices.SortFunc(b.tests, func(x, y *test) int { return int(x.took - y.took) })
	log.Printf("%s: %d tests reach %d mutants, %.1f s", b.pkg, len(b.tests), len(all), time.Since(start).Seconds())
	return nil
}

// dependents lists the packages of the suite: the targets, or those with tests that import a target.
func (r *runner) dependents(targets []string) (out []*binary, err error) {
	mode := packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps
	list, err := packages.Load(&packages.Config{Mode: mode, Dir: r.root, Tests: true, BuildFlags: []string{"-tags", r.suite.tags}}, "./...")
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		name, isTest := strings.CutSuffix(p.PkgPath, ".test")
		if !isTest {
			continue
		}
		own := slices.ContainsFunc(targets, func(t string) bool { return t == name || path.Dir(t) == name })
		uses := false
		packages.Visit([]*packages.Package{p}, nil, func(dep *packages.Package) { uses = uses || slices.Contains(targets, dep.PkgPath) })
		if own == r.suite.own && (own || uses) {
			out = append(out, &binary{pkg: name, dir: p.Dir})
		}
	}
	return out, nil
}

// numbers reads the mutants that a process has reached.
func numbers(file string) (map[int]bool, error) {
	out := map[int]bool{}
	text, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return out, nil
	}
	for word := range strings.FieldsSeq(string(text)) {
		n, _ := strconv.Atoi(word) // zzMutant writes numbers
		out[n] = true
	}
	return out, err
}

// execute runs tests in the folder of their package. It ends a process that uses much more time of a processor than the tests
// need, or takes longer than patience.
func (r *runner) execute(b *binary, tests []*test, patience time.Duration, env ...string) ([]byte, time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var names []string
	most := r.patience
	for _, t := range tests {
		names = append(names, t.name)
		most += 4 * t.cpu
	}
	limited := fmt.Sprintf(`ulimit -t %d; exec "$0" "$@"`, 1+int(most.Seconds()))
	cmd := exec.CommandContext(ctx, "sh", "-c", limited, b.file, "-test.failfast", "-test.short", "-test.skip="+r.skip, "-test.parallel=8", "-test.run", "^("+strings.Join(names, "|")+")$")
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), env...)
	if r.verdict != "" {
		cmd.Env = append(cmd.Env, program.Variable+"="+r.verdict)
	}
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	var cpu time.Duration
	if s := cmd.ProcessState; s != nil {
		cpu = s.UserTime() + s.SystemTime()
	}
	return out, cpu, err
}

// fast is how long a test may take that runs together with others. The others run alone, after these.
const fast = time.Second

// kills runs the tests that reach a mutant, fast ones first. It returns the package that noticed it.
func (r *runner) kills(m *mutant) (by string, reached bool) {
	for _, b := range r.binaries {
		var batches [][]*test
		patience := 10 * r.patience // a mutant that never ends is noticed too
		for _, t := range b.tests {
			if !t.reaches[m.id] {
				continue
			}
			if last := len(batches) - 1; last < 0 || t.took > fast {
				batches = append(batches, []*test{t})
			} else {
				batches[last] = append(batches[last], t)
			}
			patience += 4 * t.took
		}
		for _, tests := range batches {
			reached = true
			if _, _, err := r.execute(b, tests, patience, "MUTANT="+strconv.Itoa(m.id)); err != nil {
				return b.pkg, true
			}
		}
	}
	return "", reached
}

// tail is the end of a text.
func tail(text []byte, lines int) string {
	all := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(all[max(len(all)-lines, 0):], "\n")
}

// command runs a program in a folder and returns its standard output.
func command(dir string, env []string, name string, args ...string) ([]byte, error) {
	cmd := exec.Command(name, args...)
	var errText bytes.Buffer
	cmd.Dir, cmd.Env, cmd.Stderr = dir, append(os.Environ(), env...), &errText
	out, err := cmd.Output()
	if err != nil {
		return out, fmt.Errorf("%s: %w\n%s", cmd, err, errText.Bytes())
	}
	return out, nil
}
