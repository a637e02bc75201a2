// Command verdict is a Kubernetes Service proxy: "verdict run" is the daemon, the other sub-commands look at what it
// does or would do. This package reads flags and wires the parts together; everything else happens in the packages.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/demo"
	"github.com/verdict-proxy/verdict/cmd/verdict/list"
)

// version is stamped by the linker (see the Makefile).
var version = "unversioned"

// Exit codes.
const (
	exitFailure = 1 // something went wrong while running
	exitUsage   = 2 // flags or arguments are wrong
)

// usageError marks what the user can mend by calling the command differently.
type usageError struct{ error }

func wrongUsage(err error) error { return usageError{err} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	if text := oneLine(err); text != "" {
		fmt.Fprintln(os.Stderr, "verdict: "+text)
	}
	os.Exit(exitCode(err))
}

func exitCode(err error) int {
	var usage usageError
	var ended demo.ExitError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &ended):
		return ended.Code
	}
	return exitFailure
}

// oneLine joins the lines of several errors.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "verdict",
		Short:         "A Kubernetes Service proxy over a fixed nftables program",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("unknown command %q; see verdict --help", args[0])}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("verdict {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newRun(), newRender(), list.New(wrongUsage), demo.New(noArguments), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), "verdict "+version)
			return err
		},
	}
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args)}
	}
	return nil
}
