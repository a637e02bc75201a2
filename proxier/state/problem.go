package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
