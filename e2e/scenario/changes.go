package scenario

import (
	"fmt"
	"slices"
	"strconv"
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
	// Endpoints writes the EndpointSlices of a Service.
	Endpoints struct {
		Service string
		Slice   string     // suffix of the slices' names
		Other   bool       // in the family that is not under test
		List    []Endpoint // empty: the slice stays, without endpoints
	}
)

// Endpoint is one endpoint as it is written: a pod, its port, its conditions and its hints.
type Endpoint struct {
	Pod   string
	Port  int // 0: the Service's targetPort, or 8080
	Count int // for "many": the number of addresses
	// Ready, Serving and Terminating are the conditions; nil leaves one out of the slice.
	Ready, Serving, Terminating *bool
	// Zones and Nodes are hints.
	Zones, Nodes []string
}

func readApply(a *arguments) any {
	s := &Apply{YAML: a.text()}
	a.failWith(checkObjects(s.YAML))
	return s
}

func readPatch(a *arguments) any {
	s := &Patch{Kind: a.next("a kind"), Name: a.next("a name"), YAML: a.rest()}
	_, err := parseDocument(lab.IPv4, s.YAML)
	a.failWith(err)
	return s
}

func readEndpoints(a *arguments, other bool) any {
	s := &Endpoints{Other: other}
	s.Service, s.Slice, _ = strings.Cut(a.next("a Service"), "/")
	if s.Slice == "" {
		s.Slice = "1"
	}
	for len(a.words) > 0 {
		e, err := parseEndpoint(a.next("an endpoint"))
		a.failWith(err)
		s.List = append(s.List, e)
	}
	return s
}

// parseEndpoint reads a, a:8081, b(terminating), c(zones=z1+z2,nodes=node-1), many*3000.
func parseEndpoint(word string) (Endpoint, error) {
	yes, no := true, false
	e := Endpoint{Ready: &yes, Serving: &yes, Terminating: &no}
	name, rest, has := strings.Cut(word, "(")
	if has {
		for _, m := range strings.Split(strings.TrimSuffix(rest, ")"), ",") {
			if err := e.modify(m); err != nil {
				return e, fmt.Errorf("endpoint %s: %w", word, err)
			}
		}
	}
	name, count, isMany := strings.Cut(name, "*")
	name, port, hasPort := strings.Cut(name, ":")
	e.Pod = name
	var err error
	if hasPort {
		if e.Port, err = strconv.Atoi(port); err != nil {
			return e, fmt.Errorf("endpoint %s: %q is not a port", word, port)
		}
	}
	if isMany {
		if e.Count, err = strconv.Atoi(count); err != nil {
			return e, fmt.Errorf("endpoint %s: %q is not a number", word, count)
		}
	}
	if isMany != (name == "many") || !isMany && name != "host" && !slices.Contains(lab.Pods(), name) {
		return e, fmt.Errorf("endpoint %s: there is no such pod", word)
	}
	return e, nil
}

// modify applies one word of those in parentheses after an endpoint.
func (e *Endpoint) modify(word string) error {
	yes, no := true, false
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "unready":
		e.Ready, e.Serving = &no, &no
	case "terminating": // but still serving
		e.Ready, e.Terminating = &no, &yes
	case "stopping": // terminating, and no longer serving
		e.Ready, e.Serving, e.Terminating = &no, &no, &yes
	case "published": // the Service publishes addresses that are not ready, so the slice says that this one is
		e.Serving = &no
	case "bare": // no conditions
		e.Ready, e.Serving, e.Terminating = nil, nil, nil
	case "silent": // terminating, without the condition serving
		e.Ready, e.Serving, e.Terminating = &no, nil, &yes
	case "zones":
		e.Zones = strings.Split(value, "+")
	case "nodes":
		e.Nodes = strings.Split(value, "+")
	default:
		return fmt.Errorf("%q is not understood", word)
	}
	return nil
}
