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

// Scenario is one test: a list of steps that run one after the other, in one address family.
type Scenario struct {
	Name string
	File string // without its folder and extension
	Line int
	// Flags are flags of the proxy, in addition to those that every test sets.
	Flags []string
	// Families are the families in which the scenario runs; both by default.
	Families []lab.Family
	// OnlyAPIServer says why the scenario cannot run from a folder of manifests; empty if it can.
	OnlyAPIServer string
	// NotUpstream says why the scenario cannot run against upstream's kube-proxy; empty if it can.
	NotUpstream string
	// NotIPVS says why the scenario does not run with --backend=ipvs; empty if it does.
	NotIPVS string
	Steps   []Step
}

// Probes counts the steps that check something.
func (s *Scenario) Probes() (n int) {
	for _, step := range s.Steps {
		if step.Expects() {
			n++
		}
	}
	return n
}

// Arguments are the flags, with the addresses of one family in the place of names.
func (s *Scenario) Arguments(f lab.Family) ([]string, error) {
	text, err := Expand(f, strings.Join(s.Flags, " "))
	return strings.Fields(text), err
}

// Load reads all files that end in .txt, ordered by name.
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

// unique fails when two scenarios of a file have the same name.
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

// Parse reads one file. It reports all mistakes in it at once, each with its line.
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
