package kernel

import (
	"strings"
	"testing"
)

// TestFlaws: the fast path stays off on the versions that have a flaw, and on no others.
func TestFlaws(t *testing.T) {
	for release, want := range map[string]string{
		"5.19.0": "", "6.1.0-44-amd64": "", "6.12.73+deb13-amd64": "", "6.13.12": "",
		"6.14.0": "ends connections", "6.18.5-200.fc43.x86_64": "ends connections", "6.19.0-rc1": "breaks TCP", "7.0.3": "ends connections",
		"7.1.0": "", "7.3-rc2": "", "10.0.0": "", "strange": "",
	} {
		if got := flawOf(release); got != want && (want == "" || !strings.HasPrefix(got, want)) {
			t.Errorf("%s: the flaw is %q, want %q", release, got, want)
		}
	}
}
