package state

import (
	"strings"
	"testing"
)

func TestClip(t *testing.T) {
	tests := []struct {
		text    string
		longest int
		want    string
	}{
		{"", 5, ""},
		{"short", 5, "short"},
		{"longer", 5, "longe..."},
		{"ab\u00e9d", 3, "ab..."},
		{"ab\u00e9d", 4, "ab\u00e9..."},
		{"\x80\x80\x80\x80\x80\x80\x80\x80", 6, "\x80\x80..."},
	}
	for _, tt := range tests {
		if got := Clip(tt.text, tt.longest); got != tt.want {
			t.Errorf("Clip(%q, %d) = %q, want %q", tt.text, tt.longest, got, tt.want)
		}
	}
}

// TestProblemsAreShort: no value of an object makes a Problem long.
func TestProblemsAreShort(t *testing.T) {
	long := strings.Repeat("\xff", 250_000)
	l := ProblemList{Object: Object{Kind: "Service", Name: Name{Namespace: "shop", Name: "web"}}}
	l.Add(long, "%s", long)
	l.Add("spec", "%s is bad", Quote(long))
	raw := []Problem{{Kind: "Service", Object: l.Object.Name, Field: long, Reason: long}}
	for _, p := range Bound(l.Object, l.Problems(), raw) {
		if len(p.Field) > 200 || len(p.Reason) > 500 {
			t.Errorf("a Problem with a field of %d bytes and a reason of %d bytes", len(p.Field), len(p.Reason))
		}
	}
}
