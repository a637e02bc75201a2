package demo

import (
	"testing"
)

const small = `table ip other {
	map services {
		elements = { wrong }
	}
}
table ip verdict {
	comment "layout"
	map services {
		type a : b
		elements = { x : 0:2 }
	}

	map dispatch {
		type classid : verdict
		elements = { 10:0 : goto random-1, 20:0 : goto random-2,
			     100:0 : goto random-16 }
	}

	map slots {
		elements = { 0 : a,
			     1 : b }
	}

	map empty {
	}

	chain services {
		jump x
	}
}
`

func TestExcerpt(t *testing.T) {
	tests := []struct {
		name  string
		parts []part
		want  string
		fails string
	}{
		{"a map", []part{{header: "map services", says: "Why."}}, "# Why.\nmap services {\n    type a : b\n    elements = { x : 0:2 }\n}\n", ""},
		{"a chain of the same name", []part{{header: "chain services", says: "Why."}}, "# Why.\nchain services {\n    jump x\n}\n", ""},
		{"one element", []part{{header: "map dispatch", says: "Why.", only: "random-2"}}, "# Why.\nmap dispatch {\n    elements = { ... 20:0 : goto random-2 ... }\n}\n", ""},
		{"the last element, not one that begins alike", []part{{header: "map dispatch", says: "Why.", only: "random-1"}}, "# Why.\nmap dispatch {\n    elements = { ... 10:0 : goto random-1 ... }\n}\n", ""},
		{"elements below each other", []part{{header: "map slots", says: "Why."}}, "# Why.\nmap slots {\n    elements = { 0 : a,\n                 1 : b }\n}\n", ""},
		{"two parts", []part{{header: "chain services", says: "1"}, {header: "map empty", says: "2"}}, "# 1\nchain services {\n    jump x\n}\n# 2\nmap empty {\n}\n", ""},
		{"absent", []part{{header: "chain services", says: "1"}, {header: "chain nothing", says: "2"}}, "", "the ruleset has no chain nothing"},
		{"element absent", []part{{header: "map dispatch", says: "Why.", only: "random-3"}}, "", "map dispatch has no element with random-3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := excerpt(small, "ip verdict", tt.parts)
			if got != tt.want || (err == nil) != (tt.fails == "") || err != nil && err.Error() != tt.fails {
				t.Errorf("got %v and\n%s\nwant %q and\n%s", err, got, tt.fails, tt.want)
			}
		})
	}
	if _, err := excerpt(small, "ip6 verdict", nil); err == nil {
		t.Error("a table that does not exist is no error")
	}
}
