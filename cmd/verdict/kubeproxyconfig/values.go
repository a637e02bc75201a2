package kubeproxyconfig

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
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
			texts = append(texts, fmt.Sprintf("%s=%s (it belongs to mode %s)", f.Path, text(v), f.Modes))
		default:
			texts = append(texts, fmt.Sprintf("%s=%s (%s)", f.Path, text(v), f.Why))
		}
	}
	return texts
}

// counts reports whether the field counts in the mode of the configuration.
func (f *Field) counts(c *v1alpha1.KubeProxyConfiguration) bool {
	return f.Modes == "" || strings.Contains(f.Modes, cmp.Or(string(c.Mode), "iptables"))
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

// leaves returns the fields of a configuration that hold a value, by path. The values can be set.
func leaves(c *v1alpha1.KubeProxyConfiguration) map[string]reflect.Value {
	found := map[string]reflect.Value{}
	walk(reflect.ValueOf(c).Elem(), nil, found)
	return found
}

func walk(v reflect.Value, path []string, found map[string]reflect.Value) {
	if !isGroup(v) {
		found[strings.Join(path, ".")] = v
		return
	}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case field.Type == reflect.TypeFor[metav1.TypeMeta](): // kind and apiVersion
		case name == "": // embedded
			walk(v.Field(i), path, found)
		default:
			walk(v.Field(i), append(slices.Clone(path), name), found)
		}
	}
}

// isGroup reports whether a value holds fields. Types that encode themselves, such as a duration, are values.
func isGroup(v reflect.Value) bool {
	_, encodes := v.Addr().Interface().(interface{ UnmarshalJSON([]byte) error })
	return v.Kind() == reflect.Struct && !encodes
}

// isSet reports whether a field has another value than that of an empty file. kube-proxy replaces the zero value by the
// default.
func isSet(v reflect.Value) bool {
	if !v.IsValid() { // the field is gone
		return false
	}
	if q, ok := v.Addr().Interface().(interface{ IsZero() bool }); ok {
		return !q.IsZero() // an amount of 0 has a format
	}
	if v.Kind() == reflect.Slice {
		return v.Len() > 0 // kubespray writes []
	}
	return !v.IsZero()
}

// text returns the value of a field as a flag takes it.
func text(v reflect.Value) string {
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch value := v.Interface().(type) {
	case metav1.Duration:
		return value.Duration.String()
	case logsapi.TimeOrMetaDuration:
		return value.Duration.Duration.String()
	case []string:
		return strings.Join(value, ",")
	case map[string]bool:
		return cliflag.NewMapStringBool(&value).String()
	}
	return fmt.Sprint(v.Interface())
}

// setText sets a field from the value of a flag. A flag without a value gives the zero value.
func setText(v reflect.Value, flag string) error {
	v.SetZero()
	switch {
	case flag == "":
		return nil
	case v.Kind() == reflect.String:
		v.SetString(flag)
		return nil
	case v.Kind() == reflect.Map:
		return cliflag.NewMapStringBool(v.Addr().Interface().(*map[string]bool)).Set(flag)
	case v.Kind() == reflect.Slice:
		v.Set(reflect.ValueOf(strings.Split(flag, ",")))
		return nil
	}
	return yaml.Unmarshal([]byte(flag), v.Addr().Interface())
}
