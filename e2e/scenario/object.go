package scenario

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// Object is a Kubernetes object, decoded from JSON.
type Object map[string]any

// Kind is the object's kind.
func (o Object) Kind() string { s, _ := o["kind"].(string); return s }

// Name is the object's name.
func (o Object) Name() string { s, _ := o.at("metadata")["name"].(string); return s }

// Namespace is the namespace of the object; empty if its kind has none.
func (o Object) Namespace() string { s, _ := o.at("metadata")["namespace"].(string); return s }

// at follows fields. For a field that is missing, it returns an empty object that is not part of this one.
func (o Object) at(fields ...string) Object {
	for _, f := range fields {
		switch next := o[f].(type) {
		case map[string]any:
			o = next
		default:
			return Object{}
		}
	}
	return o
}

func (o Object) list(field string) []any { l, _ := o[field].([]any); return l }

// IsNamespaced reports whether objects of a kind live in a namespace.
func IsNamespaced(kind string) bool { return kind != "Node" && kind != "ServiceCIDR" }

// version is the apiVersion of the kinds that the proxy reads.
func version(kind string) (string, error) {
	switch kind {
	case "Service", "Node":
		return "v1", nil
	case "EndpointSlice":
		return "discovery.k8s.io/v1", nil
	case "ServiceCIDR":
		return "networking.k8s.io/v1", nil
	}
	return "", fmt.Errorf("kind %q is none of Service, EndpointSlice, Node, ServiceCIDR", kind)
}

var variable = regexp.MustCompile(`\$([A-Z][A-Z0-9_]*)`)

// Expand replaces each $NAME by its address or range in a family.
func Expand(f lab.Family, text string) (string, error) {
	var errs []error
	out := variable.ReplaceAllStringFunc(text, func(word string) string {
		value, err := lab.Text(f, word[1:])
		errs = append(errs, err)
		return value
	})
	return out, errors.Join(errs...)
}

// parseDocument reads one YAML document, with the addresses of a family in the place of names.
func parseDocument(f lab.Family, text string) (Object, error) {
	text, err := Expand(f, text)
	if err != nil {
		return nil, err
	}
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("read YAML: %w", err)
	}
	o := Object{}
	if err := json.Unmarshal(data, (*map[string]any)(&o)); err != nil {
		return nil, fmt.Errorf("read YAML: %w", err)
	}
	return o, nil
}

// Objects are the objects of an apply step in a family. Fields that the scenario leaves out are filled in.
func (s *Apply) Objects(f lab.Family) ([]Object, error) {
	var out []Object
	for _, text := range strings.Split("\n"+s.YAML, "\n---\n") {
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

func checkObjects(text string) error {
	s := Apply{text}
	for _, f := range lab.Families() {
		if _, err := s.Objects(f); err != nil {
			return err
		}
	}
	return nil
}

// complete adds fields that the API server or kubectl would add.
func (o Object) complete() error {
	v, err := version(o.Kind())
	if err != nil {
		return err
	}
	o["apiVersion"] = v
	meta, ok := o["metadata"].(map[string]any)
	if !ok || o.Name() == "" {
		return fmt.Errorf("%s without metadata.name", o.Kind())
	}
	if IsNamespaced(o.Kind()) && o.Namespace() == "" {
		meta["namespace"] = "default"
	}
	if o.Kind() == "Service" {
		o.completeService()
	}
	return nil
}

func (o Object) completeService() {
	spec := o.at("spec")
	ips := spec.list("clusterIPs")
	for i, ip := range ips {
		if text, ok := ip.(string); ok && i == 0 {
			spec["clusterIP"] = text
		}
	}
	if len(ips) == 2 {
		spec["ipFamilyPolicy"] = "RequireDualStack"
	}
	for _, p := range spec.list("ports") {
		if port, ok := p.(map[string]any); ok && port["protocol"] == nil {
			port["protocol"] = "TCP"
		}
	}
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
