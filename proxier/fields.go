package proxier

import (
	"strings"

	"github.com/verdict-proxy/verdict/proxier/state"
)

// fieldCounts count problems by kind and field. Fields have no indexes here. What remains are names that the program
// chose, so there are few.
type fieldCounts map[[2]string]int

// add counts problems; a negative sign takes them out again.
func (c fieldCounts) add(problems []state.Problem, sign int) {
	for _, p := range problems {
		key := [2]string{p.Kind, plainField(p)}
		if c[key] += sign * max(1, p.More); c[key] == 0 {
			delete(c, key)
		}
	}
}

// plainField is the field of a problem without indexes.
func plainField(p state.Problem) string {
	if p.Kind == "File" {
		return "line"
	}
	switch {
	case p.More > 0:
		return "others"
	case p.Field == "":
		return "object"
	}
	var b strings.Builder
	depth := 0
	for _, r := range p.Field {
		switch {
		case r == '[':
			depth++
		case r == ']':
			depth--
		case depth == 0:
			b.WriteRune(r)
		}
	}
	return b.String()
}
