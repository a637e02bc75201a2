package shortform

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestReadme: config/README.md has a row for each field, as the types say.
func TestReadme(t *testing.T) {
	data, err := os.ReadFile("../../../config/README.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| field | values | default | meaning |\n|---|---|---|---|\n")
	for _, row := range rows(reflect.TypeFor[LoadBalancer](), "") {
		table.WriteString(row + "\n")
	}
	if !strings.Contains(string(data), table.String()) {
		t.Errorf("config/README.md needs this table:\n%s", table.String())
	}
}

func rows(t reflect.Type, path string) (list []string) {
	for _, f := range fieldsOf(t) {
		at, inner := dot(path, f.name), f.Type
		if inner.Kind() == reflect.Slice {
			at, inner = at+"[]", inner.Elem()
		}
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if _, hasText := reflect.New(inner).Interface().(value); inner.Kind() == reflect.Struct && !hasText {
			list = append(list, rows(inner, at)...)
			continue
		}
		otherwise := f.Tag.Get("default")
		if f.required {
			otherwise = "required"
		}
		list = append(list, fmt.Sprintf("| `%s` | %s | %s | %s |", at, values(inner, f.Tag), otherwise, f.Tag.Get("doc")))
	}
	return list
}

// values describes what a field may have.
func values(t reflect.Type, tag reflect.StructTag) string {
	if words := tag.Get("enum"); words != "" {
		return "`" + strings.ReplaceAll(words, "|", "`, `") + "`"
	}
	v, hasText := reflect.New(t).Interface().(value)
	switch {
	case hasText:
		return fmt.Sprintf("such as `%v`", example(v))
	case t.Kind() == reflect.Bool:
		return "`true`, `false`"
	}
	return "a number"
}
