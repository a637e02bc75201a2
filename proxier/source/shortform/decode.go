package shortform

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// Fault is an error in a document.
type Fault struct {
	Line   int
	Field  string
	Reason string // what was found and what was expected
}

func (f Fault) String() string { return fmt.Sprintf("%s: %s", f.Field, f.Reason) }

// faults collects the faults of one document.
type faults struct {
	list []Fault
	once map[any]bool // what may occur once only
}

func (f *faults) add(field, reason string, args ...any) {
	f.list = append(f.list, Fault{Field: field, Reason: fmt.Sprintf(reason, args...)})
}

// Decode reads a LoadBalancer. Any fault means that nothing of it is to be served: a balancer that lacks a part of what
// was written would surprise more than one that stays as it was.
func Decode(text []byte) (*LoadBalancer, []Fault) {
	d, err := Parse(text)
	if err != nil {
		return nil, []Fault{{Line: 1, Reason: err.Error()}}
	}
	var lb LoadBalancer
	var f faults
	f.read(d.root, "", reflect.ValueOf(&lb).Elem(), "")
	if len(f.list) == 0 {
		f.validate(&lb)
	}
	for i := range f.list[:min(len(f.list), state.MaxProblems+1)] { // to find a line takes time; others are only counted
		f.list[i].Line = d.Line(f.list[i].Field)
	}
	if len(f.list) > 0 {
		return nil, f.list
	}
	return &lb, nil
}

// read reads a node into a value. The tag is that of its field.
func (f *faults) read(n *yaml.Node, path string, into reflect.Value, tag reflect.StructTag) {
	n = resolved(n)
	if into.Kind() == reflect.Pointer {
		into.Set(reflect.New(into.Type().Elem()))
		into = into.Elem()
	}
	own, hasText := into.Addr().Interface().(value)
	switch {
	case hasText:
		f.readValue(n, path, own)
	case into.Kind() == reflect.Struct:
		f.readStruct(n, path, into)
	case into.Kind() == reflect.Slice:
		f.readList(n, path, into, tag)
	default:
		f.readScalar(n, path, into, tag)
	}
}

func (f *faults) readStruct(n *yaml.Node, path string, into reflect.Value) {
	if n.Kind != yaml.MappingNode {
		f.add(path, "%s: expected fields", found(n))
		return
	}
	fields := fieldsOf(into.Type())
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		at := slices.IndexFunc(fields, func(f field) bool { return f.name == name })
		switch {
		case at < 0:
			f.add(dot(path, name), "unknown field: expected one of %s", strings.Join(names(fields), ", "))
		case seen[name]:
			f.add(dot(path, name), "occurs twice: expected it once")
		default:
			f.read(n.Content[i+1], dot(path, name), into.FieldByIndex(fields[at].Index), fields[at].Tag)
		}
		seen[name] = true
	}
	for _, want := range fields {
		if want.required && !seen[want.name] {
			f.add(dot(path, want.name), "missing: expected %s", want.Tag.Get("doc"))
		}
	}
}

func (f *faults) readList(n *yaml.Node, path string, into reflect.Value, tag reflect.StructTag) {
	if n.Kind != yaml.SequenceNode {
		f.add(path, "%s: expected a list", found(n))
		return
	}
	if fewest, _ := strconv.Atoi(tag.Get("min")); len(n.Content) < fewest {
		f.add(path, "an empty list: expected at least %d", fewest)
	}
	into.Set(reflect.MakeSlice(into.Type(), len(n.Content), len(n.Content)))
	for i, item := range n.Content {
		f.read(item, fmt.Sprintf("%s[%d]", path, i), into.Index(i), tag)
	}
}

// readValue reads a type that has a text of its own. A number must be one in YAML, too, as the schema says.
func (f *faults) readValue(n *yaml.Node, path string, into value) {
	expected := "a text"
	if into.schema()["type"] != "string" {
		expected = "a number or a text"
	}
	if is := jsonType(n); is != "string" && (is != "integer" || expected == "a text") {
		f.add(path, "%s: expected %s, such as %v", found(n), expected, example(into))
		return
	}
	if err := encoding.TextUnmarshaler(into).UnmarshalText([]byte(n.Value)); err != nil {
		f.add(path, "%s", err)
	}
}

func example(v value) any {
	return v.schema()["examples"].([]any)[0]
}

// readScalar reads a text with given values, a number, or true and false.
func (f *faults) readScalar(n *yaml.Node, path string, into reflect.Value, tag reflect.StructTag) {
	is := jsonType(n)
	switch into.Kind() {
	case reflect.String:
		if words := strings.Split(tag.Get("enum"), "|"); is != "string" || !slices.Contains(words, n.Value) {
			f.add(path, "%s: expected %s", found(n), oneOf(words))
		}
		into.SetString(n.Value)
	case reflect.Uint16:
		least, _ := strconv.ParseUint(tag.Get("min"), 10, 16)
		v, err := strconv.ParseUint(n.Value, 10, 16)
		if err != nil || v < least || is != "integer" {
			f.add(path, "%s: expected a number from %d to 65535", found(n), least)
		}
		into.SetUint(v)
	case reflect.Bool:
		if is != "boolean" {
			f.add(path, "%s: expected true or false", found(n))
		}
		into.SetBool(strings.EqualFold(n.Value, "true"))
	}
}

func oneOf(words []string) string {
	if len(words) == 1 {
		return words[0]
	}
	return "one of " + strings.Join(words, ", ")
}

// jsonType returns what a schema calls a scalar, or "".
func jsonType(n *yaml.Node) string {
	if n.Kind != yaml.ScalarNode {
		return ""
	}
	return map[string]string{"!!str": "string", "!!timestamp": "string", "!!int": "integer", "!!bool": "boolean"}[n.ShortTag()]
}

// found describes what a document has in place of what was expected.
func found(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "fields"
	case yaml.SequenceNode:
		return "a list"
	}
	switch n.ShortTag() {
	case "!!null":
		return "nothing"
	case "!!str", "!!timestamp":
		return "the text " + state.Quote(n.Value)
	}
	return state.Printable(state.Clip(n.Value, 64))
}

// field is a field of a document.
type field struct {
	reflect.StructField
	name     string
	required bool
}

// fieldsOf returns the fields of a type in their order, with those of inlined types.
func fieldsOf(t reflect.Type) (list []field) {
	for _, sf := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if name != "" {
			list = append(list, field{StructField: sf, name: name, required: !strings.Contains(options, "omitempty")})
		}
	}
	return list
}

func names(fields []field) (list []string) {
	for _, f := range fields {
		list = append(list, f.name)
	}
	return list
}

func dot(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}
