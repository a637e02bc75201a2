//go:build e2e

package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/verdict-proxy/verdict/e2e/lab"
)

// build makes the packages of a version in a folder.
func build(t *testing.T, version, folder string) {
	t.Helper()
	cmd := exec.Command("bash", "packages.sh")
	cmd.Env = append(os.Environ(), "VERSION="+version, "OUT="+folder, "ARCHITECTURES="+runtime.GOARCH)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
}

// TestPackageLife installs a version, upgrades it under a balanced service, removes it and purges it, on a host with systemd.
// The service answers until the purge, which leaves nothing. What the administrator wrote stays until he removes it.
func TestPackageLife(t *testing.T) {
	b := newBox(t)
	var sick atomic.Bool
	b.serveWeb("a", &sick)
	for _, version := range []string{"v1.0.0-rc.1", "v1.0.0"} { // in the order in which they sort
		build(t, version, filepath.Join(b.root, "root/packages", version))
	}
	install := func(version string) {
		t.Helper()
		if out := b.must("apt-get install -y --reinstall ./packages/" + version + "/*.deb 2>&1"); strings.Contains(out, "DOWNGRADED") {
			t.Errorf("%s sorts below the version before:\n%s", version, out)
		}
	}
	process := func() string { t.Helper(); return b.must("systemctl show -P MainPID verdict") }

	install("v1.0.0-rc.1")
	if out, err := b.run("systemctl is-active verdict"); err == nil {
		t.Errorf("a first installation starts the daemon: %s", out)
	}
	web := []byte(`apiVersion: verdict-proxy.github.io/v1alpha1
kind: LoadBalancer
metadata:
  name: web
spec:
  addresses: [192.168.7.100]
  ports: [{port: 80, targetPort: 8000}]
  endpoints: [{address: 10.0.1.1}]
`)
	for file, text := range map[string][]byte{
		"etc/verdict/web.yaml": web, "etc/default/verdict": []byte("VERDICT_ARGS=--manage-addresses=" + lab.OutsideLink + "\n"),
	} {
		if err := os.WriteFile(filepath.Join(b.root, file), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b.must("systemctl enable --now verdict 2>&1")
	client := b.At(t, "x")
	answers := func(when string) {
		t.Helper()
		if out := strings.TrimSpace(client.Must(t, "", "curl", "-fsS", "--max-time", "10", "http://192.168.7.100/")); out != "a" {
			t.Errorf("%s: the client gets %q", when, out)
		}
	}
	answers("after the installation")
	rules := b.must("verdict list default/web")

	before := process()
	install("v1.0.0")
	if now := process(); now == before || now == "0\n" {
		t.Errorf("the process was %s, and is %s after the upgrade", before, now)
	}
	answers("after the upgrade")
	b.must("systemctl stop verdict")
	install("v1.0.0")
	if out, err := b.run("systemctl is-active verdict"); err == nil {
		t.Errorf("an installation over it starts the daemon, which was stopped: %s", out)
	}
	answers("after an installation without the daemon")
	b.must("systemctl start verdict")
	if now := b.must("verdict list default/web"); strings.Count(now, "\n") != strings.Count(rules, "\n") {
		t.Errorf("before the upgrades:\n%s\nnow:\n%s", rules, now)
	}

	b.must("apt-get remove -y verdict 2>&1")
	if out, err := b.run("ls /proc/*/exe -l 2>/dev/null | grep verdict"); err == nil {
		t.Errorf("after the removal, the daemon runs: %s", out)
	}
	answers("after the removal")
	b.must("apt-get purge -y verdict 2>&1")
	if tables := b.Node.Must(t, "", "nft", "list", "tables"); strings.Contains(tables, "verdict") {
		t.Errorf("after the purge, the kernel has %s", tables)
	}
	if addresses := b.Node.Must(t, "", "ip", "-o", "addr"); strings.Contains(addresses, "192.168.7.100") {
		t.Errorf("after the purge, the host has the address:\n%s", addresses)
	}
	left := b.must("ls -d /var/lib/verdict /run/verdict /run/private/verdict /etc/default/verdict /etc/systemd/system/*/verdict.service 2>/dev/null || true")
	if left != "" {
		t.Errorf("the purge leaves:\n%s", left)
	}
	if text, err := os.ReadFile(filepath.Join(b.root, "etc/verdict/web.yaml")); err != nil || string(text) != string(web) {
		t.Errorf("the purge has touched the administrator's manifest: %q, %v", text, err)
	}
	install("v1.0.0")
	b.must("systemctl start verdict")
	if out := b.must("systemctl is-enabled verdict || true"); strings.TrimSpace(out) != "disabled" {
		t.Errorf("after the purge, the unit is %s", out)
	}
}

// TestPackagesAreClean: the checkers of both distributions find no error. What they must not find is named, with the reason, in
// the files beside the scripts.
func TestPackagesAreClean(t *testing.T) {
	folder := t.TempDir()
	build(t, "v1.0.0", folder)
	base := filepath.Join(folder, "verdict_1.0.0_"+runtime.GOARCH)
	if out, err := exec.Command("lintian", "--fail-on", "error", base+".deb").CombinedOutput(); err != nil {
		t.Errorf("lintian: %v\n%s", err, out)
	}
	if out, err := exec.Command("rpmlint", "-c", "package/rpmlint.toml", base+".rpm").CombinedOutput(); err != nil || !strings.Contains(string(out), " 0 errors") {
		t.Errorf("rpmlint: %v\n%s", err, out)
	}
}
