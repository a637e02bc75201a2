package scenario

import (
	"errors"
	"regexp"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// objectVerbs change objects of the cluster.
func objectVerbs() []Verb {
	return []Verb{{
		Name: "apply", Examples: []string{"apply\n  kind: Service\n  metadata: {name: web}"},
		Help: "create or replace the objects in the YAML below: Service, EndpointSlice, Node, ServiceCIDR; " +
			"`---` separates two",
		read: readApply,
	}, {
		Name: "patch", Arguments: "KIND NAME YAML", Examples: []string{"patch Service web {spec: {type: NodePort}}"},
		Help: "merge YAML into an object; null removes a field, and a list replaces a list",
		read: readPatch,
	}, {
		Name: "delete", Arguments: "KIND NAME", Examples: []string{"delete Service web"}, Help: "delete an object",
		read: func(a *arguments) any { return &Delete{Kind: a.next("a kind"), Name: a.next("a name")} },
	}, {
		Name: "endpoints", Arguments: "SERVICE[/SLICE] [ENDPOINT ...]",
		Examples: []string{
			"endpoints web a b:8081 c(terminating) d(unready,zones=z1+z2)", "endpoints web/2 many*3000", "endpoints web",
		},
		Help: "write the EndpointSlice of a Service; `SERVICE/2` is a second slice. Conditions and hints stand in " +
			"parentheses: `unready`, `terminating` (and serving), `stopping` (terminating and not serving), " +
			"`published` (ready and not serving), `bare` (no conditions), `silent` (terminating, without the " +
			"condition serving), `zones=Z+Z`, `nodes=N+N`. `many*3000` stands for 3,000 endpoints",
		read: func(a *arguments) any { return readEndpoints(a, false) },
	}, {
		Name: "other-endpoints", Arguments: "SERVICE[/SLICE] [ENDPOINT ...]",
		Examples: []string{"other-endpoints web a", "other-endpoints web/2", "other-endpoints web"},
		Help:     "the same for a slice of the family that is not under test",
		read:     func(a *arguments) any { return readEndpoints(a, true) },
	}}
}

type (
	// Apply creates or replaces objects.
	Apply struct{ YAML string }
	// Patch merges fields into an object.
	Patch struct{ Kind, Name, YAML string }
	// Delete deletes an object.
	Delete struct{ Kind, Name string }
)

func readApply(a *arguments) any {
	s := &Apply{YAML: strings.Join(a.body, "\n")}
	a.body = nil
	for _, f := range lab.Families() {
		_, err := s.Objects(f)
		a.failWith(err)
	}
	return s
}

func readPatch(a *arguments) any {
	s := &Patch{Kind: a.next("a kind"), Name: a.next("a name"), YAML: strings.Join(a.words, " ")}
	a.words = nil
	_, err := s.Object(lab.IPv4)
	a.failWith(err)
	return s
}

// Objects are the objects of an apply step in a family. Fields that the scenario leaves out are filled in.
func (s *Apply) Objects(f lab.Family) ([]Object, error) {
	var out []Object
	for _, text := range regexp.MustCompile(`(?m)^ *---$`).Split(s.YAML, -1) {
		if strings.TrimSpace(text) == "" {
			continue
		}
		o, err := parseDocument(f, text)
		if err == nil {
			err = o.complete()
		}
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	if len(out) == 0 {
		return nil, errors.New("no objects")
	}
	return out, nil
}

// Object is the patch in a family.
func (s *Patch) Object(f lab.Family) (Object, error) { return parseDocument(f, s.YAML) }
