//go:build !nokernel

package deploy

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stage makes a folder with what packages.sh puts into packages, with files of some age. The contents do not matter here.
func stage(t *testing.T, age time.Duration) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{
		"verdict", "verdict.service", "verdict-leave.service", "man/verdict.8.gz", "verdict.bash", "verdict.zsh", "verdict.fish", "LICENSE", "README.md", "CHANGELOG.md", "changelog.gz", "package/default", "package/copyright", "package/lintian-overrides",
		"package/postinst.sh", "package/prerm.deb.sh", "package/postrm.deb.sh", "package/prerm.rpm.sh", "loadbalancer.schema.json", "examples/web.yaml",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if at := time.Now().Add(-age); os.Chtimes(file, at, at) != nil {
			t.Fatal("cannot set the time of", file)
		}
	}
	return dir
}

// pack makes a package and returns it.
func pack(t *testing.T, format string, age time.Duration) (file string, content []byte) {
	t.Helper()
	config, err := filepath.Abs("nfpm.yaml")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(stage(t, age))
	file = filepath.Join(t.TempDir(), "verdict."+format)
	toolIn(t, config, file)
	if content, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	return file, content
}

// toolIn runs the program in the present folder.
func toolIn(t *testing.T, config, file string) {
	t.Helper()
	for name, value := range map[string]string{"PACKAGE_ARCH": "amd64", "PACKAGE_VERSION": "1.2.3", "SOURCE_DATE_EPOCH": "1790000000"} {
		t.Setenv(name, value)
	}
	tool(t, "", "package", config, file)
}

// TestPackages makes both packages, twice each. They must be equal, although the files have other times.
func TestPackages(t *testing.T) {
	if _, err := buildTools(); err != nil { // before the tests change the folder
		t.Fatal(err)
	}
	for _, format := range []string{"deb", "rpm"} {
		t.Run(format, func(t *testing.T) {
			var first, second []byte
			var file string
			t.Run("first", func(t *testing.T) { _, first = pack(t, format, 0) })
			t.Run("second", func(t *testing.T) {
				if file, second = pack(t, format, time.Hour); format == "deb" {
					checkContent(t, file)
				}
			})
			if len(first) == 0 || !bytes.Equal(first, second) {
				t.Errorf("%d and %d bytes, which differ", len(first), len(second))
			}
		})
	}
}

func checkContent(t *testing.T, file string) {
	t.Helper()
	out, err := exec.Command("dpkg-deb", "-c", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, path := range []string{
		"/usr/bin/verdict", "/usr/lib/systemd/system/verdict.service", "/usr/lib/systemd/system/verdict-leave.service", "/usr/share/man/man8/verdict.8.gz",
		"/usr/share/bash-completion/completions/verdict", "/usr/share/zsh/site-functions/_verdict",
		"/usr/share/fish/vendor_completions.d/verdict.fish", "/usr/share/doc/verdict/copyright",
	} {
		if !strings.Contains(string(out), " ."+path+"\n") {
			t.Errorf("the package lacks %s:\n%s", path, out)
		}
	}
}

// TestPackageVersions: the version of a package, as packages.sh makes it from that of a build, sorts as the builds came.
func TestPackageVersions(t *testing.T) {
	text, err := os.ReadFile("packages.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, script, _ := strings.Cut(string(text), "version=${VERSION#v}\n")
	script, _, _ = strings.Cut(script, "\nexport PACKAGE_VERSION")
	before := "0"
	for _, version := range []string{
		"3f00ba1 1790000000", "0a00ba1 1790000001", "0a00ba1-dirty 1790000001", "v1.0.0-rc.1", "v1.0.0-rc.2", "v1.0.0-rc.2-dirty", "v1.0.0-rc.2-1-g3f00ba1", "v1.0.0",
		"v1.0.0-dirty", "v1.0.0-9-gffffff1", "v1.0.0-10-g0a00ba1", "v1.0.0-10-g0a00ba1-dirty", "v1.0.1-rc.1",
	} {
		name, date, _ := strings.Cut(version, " ")
		cmd := exec.Command("bash", "-euc", "version=${VERSION#v}\n"+script+"\nprintf %s \"$PACKAGE_VERSION\"")
		cmd.Env = append(os.Environ(), "VERSION="+name, "SOURCE_DATE_EPOCH="+date)
		now, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("dpkg", "--compare-versions", before, "lt", string(now)).CombinedOutput(); err != nil {
			t.Errorf("%s is %s, which does not come after %s: %v %s", version, now, before, err, out)
		}
		before = string(now)
	}
}
