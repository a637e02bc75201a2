package kubeproxyconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const (
	apiVersion = "kubeproxy.config.k8s.io/v1alpha1"
	kind       = "KubeProxyConfiguration"
)

// Read reads a file. The errors name the wrong fields by their paths.
func Read(file string) (*v1alpha1.KubeProxyConfiguration, []Field, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration: %w", err)
	}
	c, strange, err := Parse(data)
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration from %s: %w", file, err)
	}
	return c, strange, nil
}

// Parse decodes YAML or JSON. It also returns the fields that the type lacks, each with the reason if the table has it.
// Fields that occur twice are errors.
func Parse(data []byte) (c *v1alpha1.KubeProxyConfiguration, strange []Field, err error) {
	converted, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, nil, err
	}
	c = new(v1alpha1.KubeProxyConfiguration)
	wrong, err := strictjson.UnmarshalStrict(converted, c)
	if err != nil {
		return nil, nil, locate(converted, err)
	}
	if c.APIVersion != apiVersion || c.Kind != kind {
		return nil, nil, fmt.Errorf("apiVersion is %q and kind is %q; must be %s and %s", c.APIVersion, c.Kind, apiVersion, kind)
	}
	for _, w := range wrong {
		var f Field
		if _, err := fmt.Sscanf(w.Error(), "unknown field %q", &f.Path); err != nil {
			return nil, nil, w
		}
		if i := slices.IndexFunc(Fields(), func(known Field) bool { return known.Path == f.Path }); i >= 0 {
			f = Fields()[i]
		}
		strange = append(strange, f)
	}
	return c, strange, nil
}

// locate names the field whose value has the wrong form. Not every error of the decoder does. So it decodes documents
// with one field each, and takes the first that fails.
func locate(document []byte, err error) error {
	var all map[string]any
	if json.Unmarshal(document, &all) != nil {
		return fmt.Errorf("the file must hold the fields of a %s: %w", kind, err)
	}
	found := err
	eachValue(all, nil, func(path []string, value any) bool {
		var c v1alpha1.KubeProxyConfiguration
		alone := value
		for _, name := range slices.Backward(path) {
			alone = map[string]any{name: alone}
		}
		text, e := json.Marshal(alone)
		if e == nil {
			e = strictjson.UnmarshalCaseSensitivePreserveInts(text, &c)
		}
		if e != nil {
			found = fmt.Errorf("field %s: %w", strings.Join(path, "."), e)
		}
		return e == nil
	})
	return found
}

// eachValue calls f for every value of a document, in the order of the names, until f returns false.
func eachValue(v any, path []string, f func([]string, any) bool) bool {
	group, ok := v.(map[string]any)
	if !ok || len(group) == 0 {
		return f(path, v)
	}
	names := slices.Sorted(maps.Keys(group))
	return !slices.ContainsFunc(names, func(name string) bool {
		return !eachValue(group[name], append(slices.Clone(path), name), f)
	})
}
