package state

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestBound(t *testing.T) {
	o := Object{Kind: "Service", Name: Name{Namespace: "shop", Name: "web"}}
	list := func(from, to int) ProblemList {
		l := ProblemList{Object: o}
		for i := from; i < to; i++ {
			l.Add(fmt.Sprint("f", i), "bad %d", i)
		}
		return l
	}
	var full []Problem
	for i := range 8 {
		full = append(full, Problem{Kind: "Service", Object: o.Name, Field: fmt.Sprint("f", i), Reason: fmt.Sprint("bad ", i)})
	}
	more := func(n int) Problem {
		return Problem{Kind: "Service", Object: o.Name, Field: "(others)", Reason: fmt.Sprintf("and %d more problems", n), More: n}
	}
	short, exact, long, other := list(0, 3), list(0, 8), list(0, 100), list(6, 30)
	tests := []struct {
		name string
		got  []Problem
		want []Problem
	}{
		{"none", Bound(o), nil},
		{"few", short.Problems(), full[:3]},
		{"as many as fit", exact.Problems(), full},
		{"too many", long.Problems(), append(full[:8:8], more(92))},
		{"the same twice", Bound(o, short.Problems(), short.Problems()), full[:3]},
		{"two lists", Bound(o, short.Problems(), long.Problems()[3:], other.Problems()), append(full[:8:8], more(92+16+6))},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}
