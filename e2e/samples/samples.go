// Package samples has files of other programs: those of their Debian packages, and shapes of our own.
package samples

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed shapes/*.conf
var shapes embed.FS

// Shapes returns configurations of keepalived after what people publish: one oddity each.
func Shapes(t testing.TB) (files []string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, shapes); err != nil {
		t.Fatal(err)
	}
	files, _ = filepath.Glob(filepath.Join(dir, "shapes/*.conf"))
	return files
}

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
