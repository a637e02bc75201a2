package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Expect is what a probe expects.
type Expect struct {
	// Outcome is how every connection ends. With Answered, Backends or Ref says which endpoints answer.
	Outcome lab.Outcome
	// Backends are exactly the endpoints that answer.
	Backends []string
	// OneOf means that one of Backends answers, always the same one. As is the name under which the runner remembers
	// it.
	OneOf bool
	As    string
	// Ref is the name of a remembered endpoint, which answers.
	Ref string
	// Source says which source address the endpoint sees: "client", "node" (any address of the node) or $NAME; "" is
	// any.
	Source string
}

// Sequential reports whether the probe remembers an endpoint or refers to one, so that it cannot run beside other
// probes.
func (e *Expect) Sequential() bool { return e.As != "" || e.Ref != "" }

// parseExpect reads the words after =>.
func parseExpect(words []string) (e Expect, err error) {
	if len(words) == 0 {
		return e, errors.New("nothing is expected")
	}
	switch o := lab.Outcome(words[0]); o {
	case lab.Refused, lab.Dropped, lab.Unreachable, lab.Broken:
		e.Outcome = o
		if len(words) > 1 {
			return e, fmt.Errorf("%q after %s: not understood", words[1], o)
		}
		return e, nil
	}
	e.Outcome = lab.Answered
	if words, e.Source, err = cutSource(words); err != nil {
		return e, err
	}
	if i := slices.Index(words, "as"); i >= 0 {
		if i != len(words)-2 {
			return e, errors.New(`"as" needs one name after it`)
		}
		e.As, words = words[i+1], words[:i]
	}
	if len(words) > 2 && words[0] == "one" && words[1] == "of" {
		e.OneOf, words = true, words[2:]
	}
	if len(words) == 1 && strings.HasPrefix(words[0], "@") {
		e.Ref = words[0][1:]
		return e, nil
	}
	if e.As != "" && !e.OneOf {
		return e, errors.New(`"as" needs "one of"`)
	}
	e.Backends, err = backends(words)
	return e, err
}

// cutSource cuts off "source" and the word after it.
func cutSource(words []string) (rest []string, source string, err error) {
	i := slices.Index(words, "source")
	if i < 0 {
		return words, "", nil
	}
	if i != len(words)-2 {
		return nil, "", errors.New(`"source" needs "client", "node" or $NAME after it, at the end`)
	}
	source = words[i+1]
	name, isName := strings.CutPrefix(source, "$")
	switch {
	case isName:
		_, err = lab.Lookup(lab.IPv4, name)
	case source != "client" && source != "node":
		err = fmt.Errorf(`"source" needs "client", "node" or $NAME after it, not %q`, source)
	}
	return words[:i], source, err
}

// backends checks a list of endpoints such as a and b:8081.
func backends(words []string) ([]string, error) {
	if len(words) == 0 {
		return nil, errors.New("no endpoint is expected: name at least one, or an outcome")
	}
	for _, w := range words {
		name, _, _ := strings.Cut(w, ":")
		if name != "host" && !slices.Contains(lab.Pods(), name) {
			return nil, fmt.Errorf("%q is not an endpoint", w)
		}
	}
	return words, nil
}
