package demo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
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

var counters = regexp.MustCompile(`counter packets \d+ bytes \d+ `)

// The demo says that nft shows the same ruleset, with counters. This test compares them.
func TestExcerptIsWhatTheKernelHas(t *testing.T) {
	families := stacks()["two families"]
	f, err := newFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"service.yaml": serviceManifest(families), "endpoints.yaml": slicesManifest(families, testBackends(families, "pod-a", "pod-c")),
	} {
		if err := f.write(name, text); err != nil {
			t.Fatal(err)
		}
	}
	script := `
set -e
arguments="$0"
"$VERDICT" render $arguments > "$TMPDIR/rendered"
"$VERDICT" run $arguments --healthz-bind-address= --metrics-bind-address= 2>/dev/null & proxy=$!
until nft list table ip verdict 2>/dev/null | grep -q 10.0.1.2; do sleep 0.05; kill -0 $proxy; done
nft list table ip verdict > "$TMPDIR/listed"
kill $proxy
wait $proxy`
	u := users()[0]
	own := func() *syscall.SysProcAttr {
		a := u.attr()
		a.Cloneflags |= unix.CLONE_NEWNET
		return a
	}
	s := start(t, user{u.name, own}, nil, "sh", "-c", script, strings.Join(sourceArguments(f.path, families), " "))
	if code := s.end(); code != 0 {
		t.Fatalf("exit %d (the test needs the nft program):\n%s%s", code, s.output.String(), s.errs.String())
	}
	var texts [2]string
	for i, name := range []string{"rendered", "listed"} {
		text, err := os.ReadFile(filepath.Join(s.temp, name))
		if err != nil {
			t.Fatal(err)
		}
		if texts[i], err = excerpt(string(text), "ip verdict", path(2)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if listed := counters.ReplaceAllString(texts[1], ""); listed != texts[0] {
		t.Errorf("the kernel has\n%s\nthe demo shows\n%s", listed, texts[0])
	}
	if !counters.MatchString(texts[1]) {
		t.Errorf("no counters in the kernel's:\n%s", texts[1])
	}
}
