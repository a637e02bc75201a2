package fields

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"
)

type inner struct {
	text   string
	number uint16
}

type outer struct {
	Flag   bool
	Addr   netip.Addr
	Net    netip.Prefix
	At     time.Time
	Wait   time.Duration
	Inner  inner
	None   *inner
	some   *inner
	Empty  []inner
	listed []inner
	Bytes  [2]byte
}

func base() outer {
	return outer{
		Addr: netip.MustParseAddr("10.0.0.1"), Net: netip.MustParsePrefix("10.0.0.0/8"), At: time.Unix(1, 0),
		some: &inner{text: "a"}, listed: []inner{{number: 1}, {number: 2}},
	}
}

// TestEach: every field gets its turn, and only one at a time.
func TestEach(t *testing.T) {
	var paths []string
	original, want := base(), base()
	for path, changed := range Each(original) {
		paths = append(paths, path)
		if reflect.DeepEqual(changed, want) {
			t.Errorf("%s: the copy equals the original", path)
		}
		if !reflect.DeepEqual(original, want) {
			t.Fatalf("%s: the original changed: %+v", path, original)
		}
	}
	if expected := []string{
		"Flag", "Addr", "Net", "At", "Wait", "Inner.text", "Inner.number", "None", "some.text", "some.number",
		"Empty[new]", "listed[last]", "listed[0].text", "listed[0].number", "listed[1].text", "listed[1].number",
		"Bytes[0]", "Bytes[1]",
	}; !slices.Equal(paths, expected) {
		t.Errorf("changed\n%v, want\n%v", paths, expected)
	}
}

// TestEachFindsAnIgnoredField is what the package is for.
func TestEachFindsAnIgnoredField(t *testing.T) {
	forgetful := func(a, b outer) bool {
		a.Wait, a.some = b.Wait, b.some
		return reflect.DeepEqual(a, b)
	}
	var ignored []string
	for path, changed := range Each(base()) {
		if forgetful(base(), changed) {
			ignored = append(ignored, path)
		}
	}
	if want := []string{"Wait", "some.text", "some.number"}; !slices.Equal(ignored, want) {
		t.Errorf("found %v, want %v", ignored, want)
	}
}
