package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// bill is the bill of materials of this test, read back.
func bill(t *testing.T, path string) *cdx.BOM {
	t.Helper()
	var text bytes.Buffer
	if err := write(&text, path); err != nil {
		t.Fatal(err)
	}
	bom := &cdx.BOM{}
	if err := cdx.NewBOMDecoder(&text, cdx.BOMFileFormatJSON).Decode(bom); err != nil {
		t.Fatal(err)
	}
	return bom
}

// TestEveryModule: the bill of materials has each module of a binary with its version and the checksum of go.sum, and
// the standard library.
func TestEveryModule(t *testing.T) {
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]cdx.Component{}
	for _, c := range *bill(t, path).Components {
		got[c.PackageURL] = c
	}
	if _, ok := got["pkg:golang/std@"+strings.TrimPrefix(info.GoVersion, "go")]; !ok {
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
	err := write(&bytes.Buffer{}, "main.go")
	if want := "read the modules of main.go"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %s", err, want)
	}
}
