//go:build !nokernel

package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// analyzed copies the units to a folder, with a program that exists, because systemd-analyze looks for it.
func analyzed(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("verdict.service")
	if err != nil {
		t.Fatal(err)
	}
	leave, err := os.ReadFile("verdict-leave.service")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string][]byte{"verdict.service": text, "verdict-leave.service": leave} {
		if err := os.WriteFile(filepath.Join(dir, name), bytes.ReplaceAll(text, []byte("/usr/local/bin/verdict"), []byte(binary)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "verdict.service")
}

// TestSystemdVerifies: systemd understands each line of the unit.
func TestSystemdVerifies(t *testing.T) {
	file := analyzed(t)
	if out, err := exec.Command("systemd-analyze", "verify", file, filepath.Join(filepath.Dir(file), "verdict-leave.service")).CombinedOutput(); err != nil || strings.Contains(string(out), "verdict") {
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
