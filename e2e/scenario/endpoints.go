package scenario

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Endpoints writes the EndpointSlices of a Service.
type Endpoints struct {
	Service string
	Slice   string     // suffix of the slices' names
	Other   bool       // in the family that is not under test
	List    []Endpoint // empty: the slice stays, without endpoints
}

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

// endpointForm is a pod or many of them, a port, and words in parentheses.
var endpointForm = regexp.MustCompile(`^(host|[a-d]|many)(?:\*(\d+))?(?::(\d+))?(?:\((.*)\))?$`)

// parseEndpoint reads a, a:8081, b(terminating), c(zones=z1+z2,nodes=node-1), many*3000.
func parseEndpoint(word string) (Endpoint, error) {
	e := Endpoint{Ready: new(true), Serving: new(true), Terminating: new(false)}
	parts := endpointForm.FindStringSubmatch(word)
	if parts == nil || (parts[1] == "many") != (parts[2] != "") {
		return e, fmt.Errorf("endpoint %s: it must be POD[:PORT][(WORD,...)] or many*NUMBER", word)
	}
	e.Pod = parts[1]
	e.Count, _ = strconv.Atoi(parts[2]) // both are numbers or empty
	e.Port, _ = strconv.Atoi(parts[3])
	for m := range strings.FieldsFuncSeq(parts[4], func(r rune) bool { return r == ',' }) {
		if err := e.modify(m); err != nil {
			return e, fmt.Errorf("endpoint %s: %w", word, err)
		}
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

// longestSlice is the number of endpoints that the API server allows in one slice.
const longestSlice = 1000

// Objects are the slices of an endpoints step: one for each port that endpoints name, and one for the others.
func (s *Endpoints) Objects(f lab.Family, svc Object) (out []Object) {
	if s.Other {
		f = f.Other()
	}
	byPort := map[int][]any{0: nil}
	for i := range s.List {
		e := &s.List[i]
		byPort[e.Port] = append(byPort[e.Port], e.objects(f)...)
	}
	for port, list := range byPort {
		name := s.Service + "-" + s.Slice
		if s.Other {
			name += "-other"
		}
		if port != 0 {
			name += "-" + strconv.Itoa(port)
		}
		out = append(out, s.slices(f, svc, name, port, list)...)
	}
	return out
}

// slices distributes a list of endpoints over slices of at most longestSlice endpoints.
func (s *Endpoints) slices(f lab.Family, svc Object, name string, port int, list []any) (out []Object) {
	for part := 0; part == 0 || len(list) > 0; part++ {
		n := min(len(list), longestSlice)
		o := Object{
			"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
			"metadata": map[string]any{
				"name": name, "namespace": svc.Namespace(), "labels": map[string]any{"kubernetes.io/service-name": s.Service},
			},
			"addressType": f.String(), "ports": slicePorts(svc, port), "endpoints": append([]any{}, list[:n]...),
		}
		if part > 0 {
			o.at("metadata")["name"] = name + "-part-" + strconv.Itoa(part)
		}
		out, list = append(out, o), list[n:]
	}
	return out
}

// slicePorts are the ports of a slice of a Service. other is the port number of endpoints that name their own; 0 if
// they do not.
func slicePorts(svc Object, other int) []any {
	var out []any
	for _, p := range svc.at("spec").list("ports") {
		port := Object(p.(map[string]any))
		number := int64(lab.Ports()[0])
		if n, ok := port["targetPort"].(int64); ok {
			number = n
		}
		if other != 0 {
			number = int64(other)
		}
		name, _ := port["name"].(string)
		out = append(out, map[string]any{"name": name, "protocol": port["protocol"], "port": number})
	}
	return out
}

// objects are the entries of a slice: one, or Count of them for the endpoint "many".
func (e *Endpoint) objects(f lab.Family) (out []any) {
	if e.Pod != "many" {
		return []any{e.object(lab.PodAddress(f, e.Pod).String())}
	}
	for i := range e.Count {
		out = append(out, e.object(lab.Member(f, "MANY", i+1).String()))
	}
	return out
}

func (e *Endpoint) object(address string) any {
	conditions := map[string]any{}
	for name, value := range map[string]*bool{"ready": e.Ready, "serving": e.Serving, "terminating": e.Terminating} {
		if value != nil {
			conditions[name] = *value
		}
	}
	o := map[string]any{"addresses": []any{address}, "conditions": conditions, "nodeName": lab.NodeOf(e.Pod)}
	hints := map[string]any{}
	for field, names := range map[string][]string{"forZones": e.Zones, "forNodes": e.Nodes} {
		for _, n := range names {
			list, _ := hints[field].([]any)
			hints[field] = append(list, map[string]any{"name": n})
		}
	}
	if len(hints) > 0 {
		o["hints"] = hints
	}
	return o
}
