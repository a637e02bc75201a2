package state

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Problem is a part of an object that the proxy cannot honor. The rest of the object stays in force.
type Problem struct {
	Kind   string // "Service", "EndpointSlice", "Node", "ServiceCIDR", or "File" for a manifest file
	Object Name
	Field  string // JSON path, e.g. spec.externalIPs[1]; "line 12" for a manifest file
	Reason string
	// More is not 0 in the last problem of a list that was too long. It counts the problems that are not listed.
	More int
}

// FieldEndpoints is that of Problems of which the objects are not the reason: no endpoint is good at the moment.
const FieldEndpoints = "endpoints"

// InShortForm has the field of a LoadBalancer in place of that of its Service.
func (p Problem) InShortForm() Problem {
	if own, other := map[string]string{
		"status.loadBalancer.ingress":                           "spec.addresses",
		"spec.loadBalancerSourceRanges":                         "spec.sourceRanges",
		"metadata.annotations":                                  "spec.scheduler",
		AnnotationField(AnnotationPrefix + "health-check"):      "spec.check",
		AnnotationField(AnnotationPrefix + "outlier-detection"): "spec.outlierDetection",
	}[p.Field]; other {
		p.Field = own
	}
	return p
}

// Compare orders Problems. It looks at every field, so that the order of a list never depends on chance.
func (p Problem) Compare(other Problem) int {
	return cmp.Or(
		strings.Compare(p.Kind, other.Kind),
		p.Object.Compare(other.Object),
		strings.Compare(p.Field, other.Field),
		strings.Compare(p.Reason, other.Reason),
		cmp.Compare(p.More, other.More),
	)
}

// Object identifies an object that can have problems.
type Object struct {
	Kind string
	Name Name
}

// Compare orders objects by kind, namespace and name.
func (o Object) Compare(other Object) int {
	return cmp.Or(
		strings.Compare(o.Kind, other.Kind),
		strings.Compare(o.Name.Namespace, other.Name.Namespace),
		strings.Compare(o.Name.Name, other.Name.Name),
	)
}

// ObjectProblems are all problems of one object. The list is empty if the object no longer has any.
type ObjectProblems struct {
	Object   Object
	Problems []Problem
}

// problems are those of all objects.
type problems struct {
	of      map[Object][]Problem
	changed map[Object]struct{} // the objects whose problems changed since somebody asked the last time
}

func (p *problems) set(kind string, n Name, list []Problem) {
	key := Object{Kind: kind, Name: n}
	if slices.Equal(p.of[key], list) {
		return
	}
	p.changed[key] = struct{}{}
	if len(list) == 0 {
		delete(p.of, key)
		return
	}
	p.of[key] = list
}

// MaxProblems limits how many problems of one object are kept and reported. An object of 1 MB can have more than
// 100,000 problems, and its owner needs only the first ones to see what is wrong.
const MaxProblems = 8

// ProblemList collects the problems of one object. It keeps the first MaxProblems and counts the others.
type ProblemList struct {
	Object Object
	list   []Problem
	more   int
}

// Add adds a problem. The reason is a format for the arguments. It quotes values of the object with Quote.
func (l *ProblemList) Add(field, reason string, args ...any) {
	if len(l.list) == MaxProblems {
		l.more++
		return
	}
	l.list = append(l.list, Problem{
		Kind: l.Object.Kind, Object: l.Object.Name,
		Field: Printable(Clip(field, maxField)), Reason: Printable(Clip(fmt.Sprintf(reason, args...), maxReason)),
	})
}

// Problems returns the problems in the order in which they were added. If some were only counted, the last one says so.
func (l *ProblemList) Problems() []Problem { return withMore(l.list, l.Object, l.more) }

func withMore(list []Problem, o Object, more int) []Problem {
	if more == 0 {
		return list
	}
	reason := fmt.Sprintf("and %d more problems", more)
	return append(list, Problem{Kind: o.Kind, Object: o.Name, Field: "(others)", Reason: reason, More: more})
}

// Bound joins lists of problems of one object. It keeps the first MaxProblems different ones and counts the others.
func Bound(o Object, lists ...[]Problem) (bounded []Problem) {
	more, seen := 0, map[Problem]struct{}{}
	for _, p := range slices.Concat(lists...) {
		if _, twice := seen[p]; twice {
			continue
		}
		seen[p] = struct{}{}
		switch {
		case p.More > 0:
			more += p.More
		case len(bounded) == MaxProblems:
			more++
		default:
			p.Field, p.Reason = Clip(p.Field, maxField), Clip(p.Reason, maxReason)
			bounded = append(bounded, p)
		}
	}
	return withMore(bounded, o, more)
}

// The longest texts in bytes. Objects are written by tenants, and one value of an object can have 1 MB. A text that is
// quoted in Problems is copied into the log and into an Event, for each part of the object that it concerns.
const (
	maxQuote  = 60  // of a value of an object
	maxReason = 400 // of a Problem
	maxField  = 160 // of the path of a field
)

// Quote returns a value of an object in quotes. It clips long values.
func Quote(s string) string { return strconv.Quote(Clip(s, maxQuote)) }

// Clip returns the first bytes of a text, followed by "..." if something is missing. It does not cut through a
// character. A clipped text shares no memory with the whole one.
func Clip(s string, longest int) string {
	if len(s) <= longest {
		return s
	}
	end := longest
	for end > longest-utf8.UTFMax && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}

// Printable returns a text that may be a line of a log or a terminal: what cannot be printed becomes an escape sequence
// of Go.
func Printable(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !strconv.IsPrint(r) }) && utf8.ValidString(s) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// Plural is "1 endpoint", "2 endpoints".
func Plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

// oneOf returns which of some words a text is. The zero value of the type is the first word.
func oneOf[T ~uint8](text string, words ...string) (T, error) {
	if i := slices.Index(words, text); i >= 0 {
		return T(i), nil
	}
	last := len(words) - 1
	return 0, fmt.Errorf("%s is not %s or %s", Quote(text), strings.Join(words[:last], ", "), words[last])
}
