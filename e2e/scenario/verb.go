package scenario

import (
	"fmt"
	"slices"
	"strings"
)

// Verb is everything that the language knows about one verb, which is the first word of a step. The code that takes the
// step is in package runner.
type Verb struct {
	Name string
	// Arguments is the grammar of what follows the name. Words in capitals stand for values; [a] may be left out; a | b
	// is either of the two.
	Arguments string
	// Examples are steps that use every form of Arguments.
	Examples []string
	// Help says in Markdown what the step does.
	Help string
	Kind Kind
	// read makes the step out of its arguments. It reports mistakes to them.
	read func(*arguments) any
}

// Kind says what the runner does before and after a step.
type Kind int

// The kinds of steps.
const (
	// Change steps are taken at once, whether or not the proxy has followed earlier changes.
	Change Kind = iota
	// Settled steps are taken when the proxy has followed all earlier changes. They check nothing.
	Settled
	// Check steps are taken when the proxy has followed all earlier changes. They check something and are counted.
	Check
)

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

// Reference is the Markdown table of all verbs of some kinds.
func Reference(kinds ...Kind) string {
	var out strings.Builder
	out.WriteString("| step | what it does | example |\n|---|---|---|\n")
	for _, v := range Verbs() {
		if slices.Contains(kinds, v.Kind) {
			usage := strings.TrimSpace(v.Name + " " + v.Arguments)
			example, _, _ := strings.Cut(v.Examples[0], "\n")
			fmt.Fprintf(&out, "| `%s` | %s | `%s` |\n", cell(usage), cell(v.Help), cell(example))
		}
	}
	return out.String()
}
