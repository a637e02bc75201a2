package dataplane

import (
	"reflect"
	"strings"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/fields"
	"github.com/verdict-proxy/verdict/nft/contents"
)

// TestGlobalsHaveEachSetting: what the environment and the globals of the rules both have reaches the rules.
func TestGlobalsHaveEachSetting(t *testing.T) {
	var base Environment
	seen := 0
	for path, changed := range fields.Each(base) {
		name := strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' })[0]
		if _, has := reflect.TypeFor[contents.Globals]().FieldByName(name); !has {
			continue
		}
		seen++
		if reflect.DeepEqual(changed.globals(false), base.globals(false)) {
			t.Errorf("%s does not reach the rules", path)
		}
	}
	if seen < reflect.TypeFor[contents.Globals]().NumField()-1 { // IPVS is no setting of the environment
		t.Errorf("only %d settings of the environment are in the globals", seen)
	}
	if !base.globals(true).IPVS || base.globals(false).IPVS {
		t.Error("IPVS does not reach the rules")
	}
}
