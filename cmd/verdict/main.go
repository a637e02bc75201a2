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
	"github.com/verdict-proxy/verdict/cmd/verdict/explain"
	"github.com/verdict-proxy/verdict/cmd/verdict/list"
)

// Exit codes.
const (
	exitFailure = 1 // an error while running
	exitUsage   = 2 // wrong flags or arguments
)

// usageError marks an error in flags or arguments.
type usageError struct{ error }

func wrongUsage(err error) error { return usageError{err} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	root := newRoot()
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) { giveWay(cmd) }
	code := execute(ctx, root)
	stop()
	os.Exit(code)
}

// execute runs a command. It prints the error, if there is one, and returns the exit code.
func execute(ctx context.Context, cmd *cobra.Command) int {
	err := cmd.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if text := oneLine(err); text != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "verdict: "+text)
	}
	return exitCode(err)
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

// oneLine returns the text of a joined error on one line.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// furtherCommands are those that a build tag adds.
var furtherCommands []func() *cobra.Command

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "verdict",
		Short:         "A Kubernetes Service proxy over a fixed nftables program",
		Version:       thisBuild().version, // makes cobra add the flag --version
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
	root.SetVersionTemplate(thisBuild().String() + "\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(newRun(), newCleanup(), newCheck(), newRender(), newDiff(), newVersion(), demo.New(noArguments),
		list.New(wrongUsage), list.NewGet(wrongUsage), list.NewTop(wrongUsage), explain.New(wrongUsage))
	for _, more := range furtherCommands {
		root.AddCommand(more())
	}
	return root
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%s takes no arguments, got %q", cmd.CommandPath(), args)}
	}
	return nil
}
