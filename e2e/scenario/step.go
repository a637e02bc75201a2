package scenario

import (
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

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

// Target is a name of the address book and a port.
type Target struct {
	Name string // without $
	Port uint16
}

// Call says which client connects to which target.
type Call struct {
	Protocol lab.Protocol
	From     string
	To       Target
}
