package scenario

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVerbs expects every verb to be documented, and its examples to be steps of that verb.
func TestVerbs(t *testing.T) {
	var names []string
	for _, v := range Verbs() {
		if v.Name == "" || v.Help == "" || len(v.Examples) == 0 || v.read == nil {
			t.Errorf("%+v: name, help, examples and the function that reads arguments are needed", v)
			continue
		}
		if slices.Contains(names, v.Name) {
			t.Errorf("two verbs are called %q", v.Name)
		}
		names = append(names, v.Name)
		for _, example := range v.Examples {
			if verb := strings.Fields(example)[0]; verb != v.Name {
				t.Errorf("%s: the example %q is a step of %s", v.Name, example, verb)
			}
			if step := parseOne(t, example); step.Do == nil || step.Kind() != v.Kind {
				t.Errorf("%s: the example %q gives %+v", v.Name, example, step)
			}
		}
	}
}

// TestGrammar expects the examples of a verb to use every keyword and every option of its grammar.
func TestGrammar(t *testing.T) {
	keyword := regexp.MustCompile(`\b[a-z]+\b=?|=>`)
	for _, v := range Verbs() {
		examples := strings.Join(v.Examples, "\n")
		for _, word := range keyword.FindAllString(v.Arguments, -1) {
			if !strings.Contains(examples, word) {
				t.Errorf("%s: no example uses %q of the grammar %q", v.Name, word, v.Arguments)
			}
		}
	}
}

// TestReference expects each verb in the table of its kind.
func TestReference(t *testing.T) {
	changes, checks := Reference(Change, Settled), Reference(Check)
	for _, v := range Verbs() {
		row := regexp.MustCompile("(?m)^\\| `" + v.Name + "[ `]")
		if row.MatchString(checks) != (v.Kind == Check) || row.MatchString(changes) == (v.Kind == Check) {
			t.Errorf("%s is missing in its table, or stands in both:\n%s\n%s", v.Name, changes, checks)
		}
	}
}
