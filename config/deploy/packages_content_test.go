//go:build e2e

package deploy

import (
	"bytes"
	"compress/gzip"
	numbers "encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// TestPackagesContent runs packages.sh for this architecture and looks into both packages: the program runs, each command
// has a man page, and each shell its completion.
func TestPackagesContent(t *testing.T) {
	out := t.TempDir()
	cmd := exec.Command("bash", "packages.sh")
	cmd.Env = append(os.Environ(), "VERSION=v0.0.0-test", "OUT="+out, "ARCHITECTURES="+runtime.GOARCH)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	base := filepath.Join(out, "verdict_0.0.0~test_"+runtime.GOARCH)
	deb := contentOfDeb(t, base+".deb")
	rpm := contentOfRPM(t, base+".rpm")
	own := map[string]bool{ // where the distributions have these
		"/usr/share/doc/verdict/copyright": true, "/usr/share/doc/verdict/changelog.gz": true, "/usr/share/lintian/overrides/verdict": true,
		"/usr/share/licenses/verdict/LICENSE": true,
	}
	for path := range deb {
		if !own[path] && !bytes.Equal(deb[path], rpm[path]) {
			t.Errorf("%s: %d bytes in the .deb, %d in the .rpm", path, len(deb[path]), len(rpm[path]))
		}
	}
	for path := range rpm {
		if deb[path] == nil && !own[path] {
			t.Errorf("only the .rpm has %s", path)
		}
	}
	for path, text := range map[string]string{
		"/usr/lib/systemd/system/verdict.service":           "ExecStart=/usr/bin/verdict run",
		"/usr/lib/systemd/system/verdict-leave.service":     "ExecStop=-/usr/bin/verdict leave",
		"/usr/share/bash-completion/completions/verdict":    "__start_verdict",
		"/usr/share/zsh/site-functions/_verdict":            "#compdef verdict",
		"/usr/share/fish/vendor_completions.d/verdict.fish": "complete -c verdict",
		"/usr/share/doc/verdict/copyright":                  "License: Apache-2.0",
		"/usr/share/doc/verdict/README.md":                  "# Deploying Verdict",
		"/usr/share/doc/verdict/CHANGELOG.md":               "## Unreleased",
		"/etc/default/verdict":                              "VERDICT_ARGS=",
		"/usr/share/doc/verdict/loadbalancer.schema.json":   "json-schema.org",
		"/usr/share/doc/verdict/examples/web.yaml":          "$schema=../loadbalancer.schema.json",
	} {
		if !bytes.Contains(deb[path], []byte(text)) {
			t.Errorf("%s does not say %q", path, text)
		}
	}
	checkLinks(t, string(deb["/usr/share/doc/verdict/README.md"]))
	checkManPages(t, deb)
	checkProgram(t, deb["/usr/bin/verdict"])
}

// checkLinks looks for what the links of the packaged README lead to.
func checkLinks(t *testing.T, readme string) {
	t.Helper()
	links := regexp.MustCompile(`\]\(([^)]+)\)`).FindAllStringSubmatch(readme, -1)
	if len(links) < 20 {
		t.Errorf("the README has %d links", len(links))
	}
	for _, m := range links {
		link, _, _ := strings.Cut(m[1], "#")
		ours, isOurs := strings.CutPrefix(link, "https://github.com/verdict-proxy/verdict/blob/main/config/deploy/")
		if _, err := os.Stat(ours); isOurs && err != nil {
			t.Errorf("the link %s of the README leads nowhere: %v", m[1], err)
		}
		if link != "" && !strings.HasPrefix(link, "https://") {
			t.Errorf("the README links to %s, which the package does not have beside it", m[1])
		}
	}
}

// checkManPages looks for the page of each command that the help of verdict lists.
func checkManPages(t *testing.T, files map[string][]byte) {
	t.Helper()
	help, err := exec.Command(binary, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(help), "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	pages := []string{"verdict"}
	for line := range strings.Lines(list) {
		if name := strings.Fields(line)[0]; name != "help" {
			pages = append(pages, "verdict-"+name)
		}
	}
	if len(pages) < 5 {
		t.Errorf("cannot parse the help: %v", pages)
	}
	for _, name := range pages {
		page := unzip(t, name, files["/usr/share/man/man8/"+name+".8.gz"])
		if !bytes.Contains(page, []byte(".SH SYNOPSIS")) {
			t.Errorf("the man page %s is\n%.200s", name, page)
		}
	}
}

// checkProgram asks the program for its version.
func checkProgram(t *testing.T, program []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "verdict")
	if err := os.WriteFile(file, program, 0o755); err != nil {
		t.Fatal(err)
	}
	version, err := exec.Command(file, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(version), "v0.0.0-test") {
		t.Errorf("the version is %q, %v", version, err)
	}
}

func unzip(t *testing.T, name string, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Errorf("%s: %v", name, err)
	}
	return text
}

// contentOfDeb has the regular files of a .deb.
func contentOfDeb(t *testing.T, file string) map[string][]byte {
	t.Helper()
	dir, files := t.TempDir(), map[string][]byte{}
	if out, err := exec.Command("dpkg-deb", "-x", file, dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		files[strings.TrimPrefix(path, dir)] = text
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// contentOfRPM has the regular files of a .rpm: a lead of 96 bytes, two headers, and a cpio archive.
func contentOfRPM(t *testing.T, file string) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at, err := headerEnd(data, 96)
	if err == nil {
		at, err = headerEnd(data, (at+7)/8*8)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	files, err := readCPIO(unzip(t, file, data[at:]))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return files
}

// headerEnd is where a header ends that begins at an offset: magic, 4 bytes, and the numbers of entries and of bytes.
func headerEnd(data []byte, at int) (int, error) {
	if len(data) < at+16 || !bytes.HasPrefix(data[at:], []byte{0x8e, 0xad, 0xe8, 1}) {
		return 0, fmt.Errorf("no header at byte %d", at)
	}
	entries, size := numbers.BigEndian.Uint32(data[at+8:]), numbers.BigEndian.Uint32(data[at+12:])
	return at + 16 + 16*int(entries) + int(size), nil
}

// readCPIO reads the regular files of an archive in the format newc: an ASCII header of 110 bytes, the name and the content,
// each filled up to four bytes.
func readCPIO(data []byte) (map[string][]byte, error) {
	files, up := map[string][]byte{}, func(n uint64) uint64 { return (n + 3) / 4 * 4 }
	for at := uint64(0); ; {
		if uint64(len(data)) < at+110 || string(data[at:at+6]) != "070701" {
			return nil, fmt.Errorf("no cpio header at byte %d of %d", at, len(data))
		}
		field := func(n int) uint64 {
			v, _ := strconv.ParseUint(string(data[at+6+uint64(8*n):at+14+uint64(8*n)]), 16, 64) // 0 ends at a wrong header
			return v
		}
		mode, size, nameSize := field(1), field(6), field(11)
		body := up(at + 110 + nameSize)
		if nameSize == 0 || body+size > uint64(len(data)) {
			return nil, fmt.Errorf("a file of %d bytes is cut off at byte %d of %d", size, at, len(data))
		}
		name := strings.TrimRight(string(data[at+110:at+110+nameSize]), "\x00")
		if name == "TRAILER!!!" {
			return files, nil
		}
		if mode&0o170000 == 0o100000 {
			files["/"+strings.TrimLeft(name, "./")] = data[body : body+size]
		}
		at = up(body + size)
	}
}
