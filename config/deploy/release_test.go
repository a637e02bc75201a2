//go:build e2e

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// release runs release.sh without the image, which needs a builder; "make full" makes all parts.
func release(t *testing.T, out string, environment ...string) (said string, err error) {
	t.Helper()
	cmd := exec.Command("./release.sh", "binaries", "packages", "chart")
	cmd.Env = append(os.Environ(), append(environment, "OUT="+out, "ARCHITECTURES=amd64")...)
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// throwAwayKey makes a key, and the file with its public half.
func throwAwayKey(t *testing.T) (private, signers string) {
	t.Helper()
	private = filepath.Join(t.TempDir(), "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", private).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	public, err := os.ReadFile(private + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	signers = filepath.Join(t.TempDir(), "signers")
	if err := os.WriteFile(signers, append([]byte("verdict-release "), public...), 0o644); err != nil {
		t.Fatal(err)
	}
	return private, signers
}

// check runs the command of README.md that checks a release.
func check(t *testing.T, dir, signers string) error {
	t.Helper()
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, command, found := strings.Cut(string(readme), "\n      ssh-keygen -Y verify")
	if !found {
		t.Fatal("README.md has no command that checks a release")
	}
	command, _, _ = strings.Cut(command, "\n")
	cmd := exec.Command("sh", "-c", "ssh-keygen -Y verify"+strings.Replace(command, "-f signers", "-f "+signers, 1))
	cmd.Dir = dir
	return cmd.Run()
}

// TestRelease: a release has all files, their checksums and a signature, which README.md checks. The chart installs the
// version that it belongs to.
func TestRelease(t *testing.T) {
	key, signers := throwAwayKey(t)
	out := filepath.Join(t.TempDir(), "release")
	said, err := release(t, out, "VERSION=v1.2.3-rc.1", "REVISION=0123456789", "RELEASE_KEY="+key)
	if err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	var files []string
	entries, _ := os.ReadDir(out)
	for _, e := range entries {
		files = append(files, e.Name())
	}
	want := []string{"SHA256SUMS", "SHA256SUMS.sig", "loadbalancer.schema.json", "verdict-chart-1.2.3-rc.1.tgz", "verdict-linux-amd64",
		"verdict-linux-amd64.sbom.json", "verdict_1.2.3~rc.1_amd64.deb", "verdict_1.2.3~rc.1_amd64.rpm"}
	if !slices.Equal(files, want) {
		t.Errorf("the files are %q, want %q", files, want)
	}
	if text, err := exec.Command(filepath.Join(out, "verdict-linux-amd64"), "version").CombinedOutput(); !strings.Contains(string(text), "v1.2.3-rc.1") {
		t.Errorf("the binary says %q, %v", text, err)
	}
	if bill, err := os.ReadFile(filepath.Join(out, "verdict-linux-amd64.sbom.json")); !strings.Contains(string(bill), "v1.2.3-rc.1") {
		t.Errorf("the bill of materials has no version: %v", err)
	}
	if objects := tool(t, "", "helm", filepath.Join(out, "verdict-chart-1.2.3-rc.1.tgz"), "monitoring.enabled=true"); !strings.Contains(objects, ":v1.2.3-rc.1") ||
		!strings.Contains(objects, "kind: PrometheusRule") {
		t.Errorf("the chart does not install the version with its monitoring:\n%s", objects)
	}
	if err := check(t, out, signers); err != nil {
		t.Errorf("the release is not what its key signed: %v", err)
	}
	_, others := throwAwayKey(t)
	if check(t, out, others) == nil {
		t.Error("any key is good")
	}
	if err := os.WriteFile(filepath.Join(out, "verdict-linux-amd64"), []byte("another"), 0o755); err != nil {
		t.Fatal(err)
	}
	if check(t, out, signers) == nil {
		t.Error("a file that was replaced is not noticed")
	}
	for _, wrong := range [][]string{{"VERSION=36d606e-dirty"}, {"VERSION="}, {"VERSION=v1.2.3", "RELEASE_KEY=/nowhere"}} {
		if said, err := release(t, out, wrong...); err == nil || !strings.Contains(said, "nothing is written") {
			t.Errorf("%q: %v, %s", wrong, err, said)
		}
		if _, err := os.Stat(filepath.Join(out, "SHA256SUMS")); err != nil {
			t.Errorf("%q removed the release before", wrong)
		}
	}
}
