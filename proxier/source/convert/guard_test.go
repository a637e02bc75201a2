package convert

import (
	"reflect"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/e2e/sourcetest"
)

// TestConversionFillsEveryField converts complete API objects. So it fails when a value of package state gains a field
// that the converter does not set.
func TestConversionFillsEveryField(t *testing.T) {
	c := New()
	service, serviceProblems := c.Service(sourcetest.CompleteService())
	slice, sliceProblems := c.Slice(sourcetest.CompleteSlice())
	node, nodeProblems := c.Node(sourcetest.CompleteNode())
	for _, p := range append(append(serviceProblems, sliceProblems...), nodeProblems...) {
		t.Errorf("problem: %v", p)
	}
	if service.KeepsSources || service.Short {
		t.Error("a Service of Kubernetes keeps sources, or is in the short form; only a balancer in the short form asks for that")
	}
	if service.NoSource {
		t.Error("source ranges are said to be unreadable, which are not")
	}
	service.KeepsSources, service.NoSource, service.Short = true, true, true
	for name, value := range map[string]any{"Service": *service, "Slice": *slice, "Node": *node} {
		reportZero(t, name, reflect.ValueOf(value))
	}
}

// reportZero reports every exported field below v that has the zero value.
func reportZero(t *testing.T, path string, v reflect.Value) {
	t.Helper()
	if v.IsZero() {
		t.Errorf("no object sets %s", path)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		reportZero(t, path, v.Elem())
	case reflect.Slice:
		reportZero(t, path, v.Index(0))
	case reflect.Struct:
		for i := range v.NumField() {
			if field := v.Type().Field(i); field.IsExported() {
				reportZero(t, path+"."+field.Name, v.Field(i))
			}
		}
	}
}

// TestSameHintsLooksAtEveryField: endpoints of a slice share their hints if sameHints says that they are equal.
func TestSameHintsLooksAtEveryField(t *testing.T) {
	c := New()
	api := sourcetest.CompleteSlice().Endpoints[0].Hints
	converted, _ := c.hints(api, nil)
	if !sameHints(converted, api) {
		t.Error("hints differ from their own conversion")
	}
	for path, changed := range fields.Each(*api) {
		if sameHints(converted, &changed) {
			t.Errorf("sameHints ignores the field %s of the API", path)
		}
	}
	for path, changed := range fields.Each(*converted) {
		if sameHints(&changed, api) {
			t.Errorf("sameHints ignores the field %s of the state", path)
		}
	}
}
