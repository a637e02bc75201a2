package kubeproxyconfig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/kube-proxy/config/v1alpha1"
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
