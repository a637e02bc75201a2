//go:build !nokernel

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// analyzed copies the unit to a folder, with a program that exists, because systemd-analyze looks for it.
func analyzed(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("verdict.service")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "verdict.service")
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/verdict", binary)), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSystemdVerifies: systemd understands each line of the unit.
func TestSystemdVerifies(t *testing.T) {
	file := analyzed(t)
	if out, err := exec.Command("systemd-analyze", "verify", file).CombinedOutput(); err != nil || strings.Contains(string(out), "verdict.service") {
		t.Errorf("%v (Debian package systemd)\n%s", err, out)
	}
	broken := filepath.Join(t.TempDir(), "verdict.service")
	if err := os.WriteFile(broken, []byte("[Service]\nExecStart=/bin/true\nNoNewPrivilege=yes\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, _ := exec.Command("systemd-analyze", "verify", broken).CombinedOutput(); !strings.Contains(string(out), "NoNewPrivilege") {
		t.Errorf("an unknown line is not found:\n%s", out)
	}
}

// mostExposure is ten times the exposure that "systemd-analyze security" may find. 10 is no protection. What remains is
// that the daemon works on the host's network, with NET_ADMIN, and announces addresses, with NET_RAW.
const mostExposure = "22"

func TestSystemdSecurity(t *testing.T) {
	out, err := exec.Command("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold="+mostExposure, analyzed(t)).CombinedOutput()
	if err != nil {
		t.Errorf("%v (Debian package systemd)\n%s", err, out)
	}
}
