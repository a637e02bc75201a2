package kubeproxyconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

// Value is the value that a field of the file gives to a flag.
type Value struct{ Path, Flag, Text string }

// Values returns the values of flags that a configuration sets. A field with the zero value sets none: kube-proxy
// replaces the zero value by the default.
func Values(c *v1alpha1.KubeProxyConfiguration) (values []Value) {
	found := leaves(c)
	for _, f := range Fields() {
		if v := found[f.Path]; isSet(v) && f.Flag != "" && f.counts(c) {
			values = append(values, Value{Path: f.Path, Flag: f.Flag, Text: text(v)})
		}
	}
	return values
}

// Unused describes the fields that a configuration sets and that have no meaning, each with the reason.
func Unused(c *v1alpha1.KubeProxyConfiguration) (texts []string) {
	found := leaves(c)
	for _, f := range Fields() {
		v := found[f.Path]
		switch {
		case !isSet(v) || f.Flag != "" && f.counts(c):
		case f.Flag != "":
			texts = append(texts, fmt.Sprintf("%s=%s (it belongs to mode %s)", f.Path, text(v), strings.Join(f.Modes, " and ")))
		default:
			texts = append(texts, fmt.Sprintf("%s=%s (%s)", f.Path, text(v), f.Why))
		}
	}
	return texts
}

// counts reports whether the field counts in the mode of the configuration.
func (f *Field) counts(c *v1alpha1.KubeProxyConfiguration) bool {
	return len(f.Modes) == 0 || slices.Contains(f.Modes, cmp.Or(string(c.Mode), modeIPTables))
}

// Write returns a file with the values of flags. Fields without meaning keep the value that they have in c.
func Write(c *v1alpha1.KubeProxyConfiguration, flag func(name string) string) ([]byte, error) {
	out := c.DeepCopy()
	out.APIVersion, out.Kind = apiVersion, kind
	out.Mode = v1alpha1.ProxyMode(flag("proxy-mode"))
	found := leaves(out)
	for _, f := range Fields() {
		if f.Flag == "" || !f.counts(out) {
			continue
		}
		if err := setText(found[f.Path], flag(f.Flag)); err != nil {
			return nil, fmt.Errorf("write field %s of the configuration from --%s=%s: %w", f.Path, f.Flag, flag(f.Flag), err)
		}
	}
	return yaml.Marshal(out)
}
