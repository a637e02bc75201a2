// Package samples has files of other programs, as their Debian packages have them.
package samples

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Keepalived returns the configurations that come with keepalived. A Debian that keeps no documentation has them only in
// the package.
func Keepalived(t testing.TB) []string {
	t.Helper()
	const inPackage = "usr/share/doc/keepalived/samples/keepalived.conf.*"
	found, _ := filepath.Glob("/" + inPackage)
	if len(found) > 0 {
		return found
	}
	dir := t.TempDir()
	cmd := exec.Command("sh", "-ec", "apt-get download -qq keepalived && dpkg-deb -x keepalived_*.deb .")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("get the package keepalived: %v\n%s", err, out)
	}
	if found, _ = filepath.Glob(filepath.Join(dir, inPackage)); len(found) == 0 {
		t.Fatal("the package keepalived has no samples")
	}
	return found
}
