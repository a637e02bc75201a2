//go:build e2e

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/verdict-proxy/verdict/e2e/apiserver"
)

// recordedFlags is what TestFlagsOfKubeProxy of command verdict compares KUBE-PROXY.md with. Each line has the name of
// a flag, its type, and its default.
const recordedFlags = "../../cmd/verdict/testdata/kube-proxy-flags.txt"

// TestRecordedFlags compares the help of upstream's kube-proxy with the flags that are recorded.
func TestRecordedFlags(t *testing.T) {
	binaries, err := apiserver.Build("kube-proxy")
	if err != nil {
		t.Fatal(err)
	}
	help, err := exec.Command(filepath.Join(binaries, "kube-proxy"), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(helpFlags(string(help)), "\n") + "\n"
	if *update {
		if err := os.WriteFile(recordedFlags, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(recordedFlags)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(text, "\n")); diff != "" {
		t.Errorf("upstream's flags are not those of %s (- recorded, + seen)\n%s", recordedFlags, diff)
	}
}

// helpFlags lists the flags in a help text. A switch has no type there, and a flag with a zero default no default.
func helpFlags(help string) (lines []string) {
	flag := regexp.MustCompile(`^ +(?:-\w, )?--([\w-]+)(?: (\S+))?   +`)
	fallback := regexp.MustCompile(`\(default "?([^")]*)"?\)$`)
	for line := range strings.Lines(help) {
		line = strings.TrimRight(line, "\n")
		match := flag.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		words := []string{match[1], "bool"}
		if match[2] != "" {
			words[1] = match[2]
		}
		if value := fallback.FindStringSubmatch(line); value != nil {
			words = append(words, value[1])
		}
		lines = append(lines, strings.Join(words, " "))
	}
	return lines
}
