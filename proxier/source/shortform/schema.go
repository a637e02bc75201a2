package shortform

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// Schema returns the JSON schema of the short form, for editors.
func Schema() ([]byte, error) {
	s := schemaOf(reflect.TypeFor[LoadBalancer](), "")
	s["$schema"] = "http://json-schema.org/draft-07/schema#"
	s["title"] = Kind + " " + APIVersion
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the schema: %w", err)
	}
	return append(out, '\n'), nil
}

// schemaOf describes a type. The tag is that of its field.
func schemaOf(t reflect.Type, tag reflect.StructTag) map[string]any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if own, ok := reflect.New(t).Interface().(value); ok {
		return own.schema()
	}
	fewest, _ := strconv.Atoi(tag.Get("min"))
	switch t.Kind() {
	case reflect.Struct:
		return structSchema(t)
	case reflect.Slice:
		return map[string]any{"type": "array", "minItems": fewest, "items": schemaOf(t.Elem(), tag)}
	case reflect.String:
		return map[string]any{"type": "string", "enum": strings.Split(tag.Get("enum"), "|")}
	case reflect.Uint16:
		return map[string]any{"type": "integer", "minimum": fewest, "maximum": 65535}
	}
	return map[string]any{"type": "boolean"}
}

func structSchema(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []string{}
	for _, f := range fieldsOf(t) {
		s := schemaOf(f.Type, f.Tag)
		s["description"] = f.Tag.Get("doc")
		if d := f.Tag.Get("default"); d != "" {
			s["description"] = f.Tag.Get("doc") + " (default: " + d + ")"
		}
		if f.required {
			required = append(required, f.name)
		}
		properties[f.name] = s
	}
	return map[string]any{"type": "object", "additionalProperties": false, "properties": properties, "required": required}
}
