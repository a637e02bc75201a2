//go:build !nokernel

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

var counters = regexp.MustCompile(`counter packets \d+ bytes \d+ `)

// The demo says that nft shows the same ruleset, with counters. This test compares them.
func TestExcerptIsWhatTheKernelHas(t *testing.T) {
	families := stacks()["two families"]
	f, err := newFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"service.yaml": serviceManifest(families, ""), "endpoints.yaml": slicesManifest(families, testBackends(families, "pod-a", "pod-c")),
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
