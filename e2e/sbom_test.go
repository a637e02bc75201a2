package e2e

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bill runs the command of "make sbom" on a file, and returns the path of the bill of materials.
func bill(t *testing.T, binary string) (path, said string, err error) {
	t.Helper()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^CYCLONEDX +:= (\S+)$`).FindSubmatch(text)
	command := regexp.MustCompile(`(?m)^\tGOARCH= \$\(GO\) run (\S+)@\$\(CYCLONEDX\) (bin .*) -version '\$\(VERSION\)' -output \$\(BINARY\)\.sbom\.json \$\(BINARY\)$`).FindSubmatch(text)
	if version == nil || command == nil {
		t.Fatal("the Makefile has no command for the bill of materials")
	}
	path = filepath.Join(t.TempDir(), "sbom.json")
	args := append([]string{"run", string(command[1]) + "@" + string(version[1])}, strings.Fields(string(command[2]))...)
	out, err := exec.Command("go", append(args, "-version", "v1.2.3", "-output", path, binary)...).CombinedOutput()
	return path, string(out), err
}

// TestBillOfMaterials: the bill of materials has each module of a binary with its version and the checksum of go.sum, and
// the standard library. It is the same for the same binary.
func TestBillOfMaterials(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "mutants") // a small program with other modules
	if out, err := exec.Command("go", "build", "-o", binary, "./mutants").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	var texts [2]string
	for i := range texts {
		path, said, err := bill(t, binary)
		text, unread := os.ReadFile(path)
		if err != nil || unread != nil {
			t.Fatalf("%v, %v: %s", err, unread, said)
		}
		texts[i] = string(text)
	}
	if texts[0] != texts[1] {
		t.Error("two bills of materials of one binary differ")
	}
	bom := &cdx.BOM{}
	if err := cdx.NewBOMDecoder(strings.NewReader(texts[0]), cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	got := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		purl, _, _ := strings.Cut(c.PackageURL, "?")
		got[purl] = c
	}
	if _, ok := got["pkg:golang/std@"+info.GoVersion]; !ok {
		t.Error("the standard library is missing")
	}
	if len(info.Deps) == 0 || len(got) != len(info.Deps)+1 {
		t.Errorf("%d components, want the standard library and %d modules", len(got), len(info.Deps))
	}
	for _, m := range info.Deps {
		c, ok := got["pkg:golang/"+m.Path+"@"+m.Version]
		if !ok {
			t.Errorf("%s %s is missing", m.Path, m.Version)
			continue
		}
		sum, err := hex.DecodeString((*c.Hashes)[0].Value)
		if err != nil || "h1:"+base64.StdEncoding.EncodeToString(sum) != m.Sum {
			t.Errorf("%s has the checksum %x (%v), want %s", m.Path, sum, err, m.Sum)
		}
	}
}

func TestNoGoBinary(t *testing.T) {
	if _, said, err := bill(t, "sbom_test.go"); err == nil || !strings.Contains(said, "sbom_test.go") {
		t.Errorf("error %v, want one that names the file: %s", err, said)
	}
}
