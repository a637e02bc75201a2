package scenario

import (
	"fmt"
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
	// OnlyManifests says why the scenario cannot run with an API server; empty if it can.
	OnlyManifests string
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

// Step is one step of a scenario.
type Step struct {
	Line int
	Text string // as it is written, for messages
	// Do is the step in the form that its verb gives it, for example a *Probe.
	Do any
	// Upstream replaces Do when upstream's kube-proxy is tested; nil means that it does the same.
	Upstream *Variant
	// IPVS replaces Do when IPVS serves the Services (--backend=ipvs); nil means that Verdict does the same with IPVS.
	IPVS *Variant
}

// Variant replaces what a step does.
type Variant struct {
	Do any
	// Instead is the other expectation as it is written, and Because is its reason.
	Instead, Because string
}

// Kind is the kind of the step's verb.
func (s *Step) Kind() Kind {
	name, _, _ := strings.Cut(squeeze(s.Text), " ")
	v, _ := findVerb(name) // the parser knew the verb
	return v.Kind
}

// Expects reports whether the step checks something.
func (s *Step) Expects() bool { return s.Kind() == Check }

// Verbs are all verbs of the language.
func Verbs() []Verb {
	return slices.Concat(objectVerbs(), nodeVerbs(), connectionVerbs(), observingVerbs())
}

func findVerb(name string) (Verb, error) {
	verbs := Verbs()
	i := slices.IndexFunc(verbs, func(v Verb) bool { return v.Name == name })
	if i < 0 {
		return Verb{}, fmt.Errorf("no step is called %q", name)
	}
	return verbs[i], nil
}

// squeeze replaces each run of blanks by a single one.
func squeeze(s string) string { return strings.Join(strings.Fields(s), " ") }
