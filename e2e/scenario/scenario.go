package scenario

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Scenario is one test: steps that are taken one after the other, in one family.
type Scenario struct {
	Name string
	File string // without its folder and ending
	Line int
	// Flags are given to the proxy in addition to those that every test gives.
	Flags []string
	// Families are those in which the scenario makes sense; both unless it says otherwise.
	Families []lab.Family
	// OnlyAPIServer is why the scenario cannot run from a folder of manifests; empty: it can.
	OnlyAPIServer string
	// NotUpstream is why the scenario cannot run against upstream's kube-proxy; empty: it can.
	NotUpstream string
	// NotIPVS is why the scenario does not run with --backend=ipvs; empty: it does.
	NotIPVS string
	Steps   []Step
}

// Probes counts the steps that expect something.
func (s *Scenario) Probes() (n int) {
	for _, step := range s.Steps {
		if step.Expects() {
			n++
		}
	}
	return n
}

// Arguments are the flags as they are meant in a family.
func (s *Scenario) Arguments(f lab.Family) ([]string, error) {
	text, err := Expand(f, strings.Join(s.Flags, " "))
	return strings.Fields(text), err
}

// Load reads all files that end in .txt, in the order of their names.
func Load(fsys fs.FS) ([]*Scenario, error) {
	names, err := fs.Glob(fsys, "*.txt")
	if err != nil {
		return nil, fmt.Errorf("list scenarios: %w", err)
	}
	slices.Sort(names)
	var out []*Scenario
	var errs []error
	for _, name := range names {
		text, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("read scenarios: %w", err)
		}
		list, err := Parse(name, string(text))
		out, errs = append(out, list...), append(errs, err)
	}
	return out, errors.Join(append(errs, unique(out))...)
}

// unique makes sure that a name tells one scenario.
func unique(list []*Scenario) error {
	seen := map[string]bool{}
	for _, s := range list {
		key := s.File + "/" + s.Name
		if seen[key] {
			return fmt.Errorf("%s.txt:%d: a second scenario is called %q", s.File, s.Line, s.Name)
		}
		seen[key] = true
	}
	return nil
}

// Parse reads one file.
func Parse(file, text string) ([]*Scenario, error) {
	p := parser{file: file}
	for _, b := range blocks(text) {
		p.block(b)
	}
	for _, s := range p.scenarios {
		if len(s.Steps) == 0 {
			p.fail(s.Line, "scenario %q has no steps", s.Name)
		}
		s.File = strings.TrimSuffix(path.Base(file), ".txt")
	}
	return p.scenarios, errors.Join(p.errs...)
}
