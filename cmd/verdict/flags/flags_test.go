package flags

import (
	"reflect"
	"testing"

	"github.com/spf13/pflag"

	"github.com/verdict-proxy/verdict/config"
)

// TestEverySettingHasAFlag sets every flag to another value. So it fails when config.Settings gains a field without a
// flag.
func TestEverySettingHasAFlag(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c := New(fs)
	other := map[string]string{"bool": "true", "string": "x", "stringSlice": "x", "int": "7", "float32": "7", "duration": "7s", "mapStringBool": "x=true"}
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value := other[f.Value.Type()]
		if value == f.DefValue {
			value = "false"
		}
		if err := f.Value.Set(value); err != nil {
			t.Errorf("--%s=%s: %v", f.Name, value, err)
		}
	})
	reportEqual(t, "Settings", reflect.ValueOf(config.Default()), reflect.ValueOf(c.Settings))
}

// reportEqual reports every field that is equal in a and b.
func reportEqual(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	if a.Kind() == reflect.Struct {
		for i := range a.NumField() {
			reportEqual(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
		return
	}
	if reflect.DeepEqual(a.Interface(), b.Interface()) {
		t.Errorf("no flag sets %s", path)
	}
}
