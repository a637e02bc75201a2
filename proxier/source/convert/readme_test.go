package convert

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// TestAnnotationTable: the tables of config/README.md are what package state says about annotations.
func TestAnnotationTable(t *testing.T) {
	own := []string{"| annotation | on | values | engines |", "|---|---|---|---|"}
	others := []string{"| annotation of another proxy | read as | values |", "|---|---|---|"}
	for _, a := range state.Annotations() {
		kind := KindService
		if a.Slice != nil {
			kind = KindSlice
		}
		own = append(own, fmt.Sprintf("| `%s` | %s | %s | %s |", a.Key, kind, a.Help, a.Engines))
		for _, alias := range a.Aliases {
			others = append(others, fmt.Sprintf("| `%s` | `%s` | %s |", alias.Key, strings.TrimPrefix(a.Key, state.AnnotationPrefix), valuesOf(&alias)))
		}
	}
	text, err := os.ReadFile("../../../config/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]string{own, others} {
		_, table, found := strings.Cut(string(text), "\n"+want[0]+"\n")
		if !found {
			t.Errorf("config/README.md lacks the table\n%s", strings.Join(want, "\n"))
			continue
		}
		table, _, _ = strings.Cut(table, "\n\n")
		if diff := cmp.Diff(want[1:], strings.Split(table, "\n")); diff != "" {
			t.Errorf("annotations (- program, + config/README.md):\n%s", diff)
		}
	}
}

// valuesOf describes the values of an alias.
func valuesOf(alias *state.Alias) string {
	if alias.Values == nil {
		return "the same"
	}
	var list []string
	for value, own := range alias.Values {
		text := "`" + value + "`"
		if own != value {
			text += " (`" + own + "`)"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return strings.Join(list, ", ")
}
