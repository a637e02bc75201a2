package scenario

import (
	"errors"
	"fmt"
	"regexp"

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

// at is the object in a field. For a field that is missing, it returns an empty object that is not part of this one.
func (o Object) at(field string) Object {
	if in, ok := o[field].(map[string]any); ok {
		return in
	}
	return Object{}
}

func (o Object) list(field string) []any { l, _ := o[field].([]any); return l }

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

// complete adds fields that the API server or kubectl would add.
func (o Object) complete() error {
	version, known := map[string]string{
		"Service": "v1", "Node": "v1", "EndpointSlice": "discovery.k8s.io/v1", "ServiceCIDR": "networking.k8s.io/v1",
	}[o.Kind()]
	if !known {
		return fmt.Errorf("kind %q is none of Service, EndpointSlice, Node, ServiceCIDR", o.Kind())
	}
	o["apiVersion"] = version
	meta, ok := o["metadata"].(map[string]any)
	if !ok || o.Name() == "" {
		return fmt.Errorf("%s without metadata.name", o.Kind())
	}
	if o.Kind() != "Node" && o.Kind() != "ServiceCIDR" && o.Namespace() == "" {
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
	if len(ips) > 0 {
		spec["clusterIP"] = ips[0]
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
