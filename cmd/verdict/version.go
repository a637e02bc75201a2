package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
)

// The linker stamps version and revision (see the Makefile). They are empty in a binary of a plain "go build" or
// "go install".
var version, revision string

// build describes this binary.
type build struct {
	version  string
	revision string // commit of the source; ends in "-modified" if the toolchain saw changes that were not committed
}

// thisBuild combines the stamped values with those that the Go toolchain wrote into the binary.
func thisBuild() build {
	info, _ := debug.ReadBuildInfo() // nil for a binary without modules
	return describeBuild(build{version: version, revision: revision}, info)
}

func describeBuild(stamped build, info *debug.BuildInfo) build {
	known := build{}
	if info != nil {
		known = build{version: info.Main.Version, revision: revisionOf(info)}
	}
	if known.version == "(devel)" { // the toolchain found neither a tag nor a module version
		known.version = ""
	}
	return build{
		version:  cmp.Or(stamped.version, known.version, "unversioned"),
		revision: cmp.Or(stamped.revision, known.revision, "unknown"),
	}
}

// revisionOf returns the revision that the Go toolchain read from the repository, or "".
func revisionOf(info *debug.BuildInfo) string {
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	if settings["vcs.revision"] != "" && settings["vcs.modified"] == "true" {
		return settings["vcs.revision"] + "-modified"
	}
	return settings["vcs.revision"]
}

func (b build) String() string {
	return fmt.Sprintf("verdict %s (revision %s, %s)", b.version, b.revision, runtime.Version())
}

func newVersion() *cobra.Command {
	var o flags.Output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print version, source revision and Go version of this binary",
		Args:  flags.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			b := thisBuild()
			value := map[string]string{"version": b.version, "revision": b.revision, "go": runtime.Version()}
			return o.Write(cmd.OutOrStdout(), value, func(out io.Writer) error {
				_, err := fmt.Fprintln(out, b)
				return err
			})
		},
	}
	o.Bind(cmd.Flags())
	return cmd
}
