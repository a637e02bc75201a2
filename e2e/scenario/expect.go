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
	// Outcome of every connection; Answered comes with Backends.
	Outcome lab.Outcome
	// Backends are exactly those that answer.
	Backends []string
	// OneOf: a single one of Backends answers, always the same; it is remembered As.
	OneOf bool
	As    string
	// Ref: the one that was remembered under this name answers.
	Ref string
	// Source is whose address the endpoint sees: "client", "node" (any of its addresses), $NAME, or "" when it does not matter.
	Source string
}

// Sequential tells that the probe has to wait for others, or others for it.
func (e *Expect) Sequential() bool { return e.As != "" || e.Ref != "" }

// parseExpect reads what stands behind "=>".
func parseExpect(words []string) (e Expect, err error) {
	if len(words) == 0 {
		return e, errors.New("nothing is expected")
	}
	switch o := lab.Outcome(words[0]); o {
	case lab.Refused, lab.Dropped, lab.Unreachable, lab.Broken:
		e.Outcome = o
		if len(words) > 1 {
			return e, fmt.Errorf("%q behind %s", words[1], o)
		}
		return e, nil
	}
	e.Outcome = lab.Answered
	if words, e.Source, err = cutSource(words); err != nil {
		return e, err
	}
	if i := slices.Index(words, "as"); i >= 0 {
		if i != len(words)-2 {
			return e, errors.New(`"as" needs one name behind it`)
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

func cutSource(words []string) (rest []string, source string, err error) {
	i := slices.Index(words, "source")
	if i < 0 {
		return words, "", nil
	}
	if i != len(words)-2 {
		return nil, "", errors.New(`"source" needs "client", "node" or $NAME behind it, at the end`)
	}
	source = words[i+1]
	name, isName := strings.CutPrefix(source, "$")
	switch {
	case isName:
		_, err = lab.Lookup(lab.IPv4, name)
	case source != "client" && source != "node":
		err = fmt.Errorf(`"source" needs "client", "node" or $NAME behind it, not %q`, source)
	}
	return words[:i], source, err
}

// backends checks names such as a and b:8081.
func backends(words []string) ([]string, error) {
	if len(words) == 0 {
		return nil, errors.New("no endpoint is named")
	}
	for _, w := range words {
		name, _, _ := strings.Cut(w, ":")
		if name != "host" && !slices.Contains(lab.Pods(), name) {
			return nil, fmt.Errorf("%q is no endpoint", w)
		}
	}
	return words, nil
}
