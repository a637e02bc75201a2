package main

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is stamped by the linker (see the Makefile). It is empty in a binary of a plain "go build" or "go install".
var version string

// build describes this binary.
type build struct {
	version   string
	revision  string // of the source, with "-modified" if it had changes that were not committed
	goVersion string
}

// thisBuild combines the stamped version with what the Go toolchain wrote into the binary.
func thisBuild() build {
	info, _ := debug.ReadBuildInfo() // nil for a binary without modules
	return describeBuild(version, info)
}

func describeBuild(stamped string, info *debug.BuildInfo) build {
	b := build{version: stamped}
	if info != nil {
		settings := map[string]string{}
		for _, s := range info.Settings {
			settings[s.Key] = s.Value
		}
		b.version = cmp.Or(b.version, info.Main.Version)
		b.revision, b.goVersion = settings["vcs.revision"], info.GoVersion
		if b.revision != "" && settings["vcs.modified"] == "true" {
			b.revision += "-modified"
		}
	}
	return build{
		version:   cmp.Or(b.version, "unversioned"),
		revision:  cmp.Or(b.revision, "unknown"),
		goVersion: cmp.Or(b.goVersion, "unknown"),
	}
}

func (b build) String() string {
	return fmt.Sprintf("verdict %s (revision %s, %s)", b.version, b.revision, b.goVersion)
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print version, source revision and Go version of this binary",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), thisBuild())
			return err
		},
	}
}
