// Command sbom prints a software bill of materials (CycloneDX 1.6, JSON) of a Go binary: the modules that the Go
// toolchain recorded in it, with their versions and checksums. "make sbom" uses it. It looks at nothing but the binary,
// and prints the same for the same binary.
//
//	go run ./e2e/sbom BINARY
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: sbom BINARY")
		os.Exit(2)
	}
	if err := write(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write prints the bill of materials of a binary.
func write(w io.Writer, path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the modules of %s: %w", path, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read %s for its checksum: %w", path, err)
	}
	bom, err := describe(info, filepath.Base(path), sha256.Sum256(content))
	if err != nil {
		return fmt.Errorf("describe %s: %w", path, err)
	}
	encoder := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("print the bill of materials of %s: %w", path, err)
	}
	return nil
}

// describe lists the standard library and all modules of a binary as components of it.
func describe(info *debug.BuildInfo, name string, sum [sha256.Size]byte) (*cdx.BOM, error) {
	program := cdx.Component{
		BOMRef: info.Main.Path, Type: cdx.ComponentTypeApplication, Name: name, Version: versionOf(info),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
		Properties: settings(info),
	}
	components := []cdx.Component{library("std", strings.TrimPrefix(info.GoVersion, "go"))}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		component := library(module.Path, module.Version)
		hash, err := contentHash(module)
		if err != nil {
			return nil, err
		}
		component.Hashes = &[]cdx.Hash{hash}
		components = append(components, component)
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &program}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: references(components)}}
	return bom, nil
}

func library(path, version string) cdx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cdx.Component{BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: url}
}

func references(components []cdx.Component) *[]string {
	var list []string
	for _, c := range components {
		list = append(list, c.BOMRef)
	}
	return &list
}

// contentHash is the checksum of a module, as in go.sum: a SHA-256 in base64 after "h1:".
func contentHash(module *debug.Module) (cdx.Hash, error) {
	encoded, ok := strings.CutPrefix(module.Sum, "h1:")
	sum, err := base64.StdEncoding.DecodeString(encoded)
	if !ok || err != nil || len(sum) != sha256.Size {
		err = errors.Join(errors.New("want h1: and a SHA-256"), err)
		return cdx.Hash{}, fmt.Errorf("checksum %q of module %s: %w", module.Sum, module.Path, err)
	}
	return cdx.Hash{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}, nil
}

// versionOf is the version that the Makefile stamps. The Go toolchain does not record the flags of the linker with
// -trimpath, so "make sbom" passes the version in the environment.
func versionOf(info *debug.BuildInfo) string {
	if stamped := os.Getenv("VERSION"); stamped != "" {
		return stamped
	}
	return info.Main.Version
}

// settings are the settings of the build that the Go toolchain recorded.
func settings(info *debug.BuildInfo) *[]cdx.Property {
	list := []cdx.Property{{Name: "go:version", Value: info.GoVersion}}
	for _, s := range info.Settings {
		list = append(list, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
	}
	return &list
}
