package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/convert"
	"github.com/verdict-proxy/verdict/cmd/verdict/demo"
	"github.com/verdict-proxy/verdict/cmd/verdict/explain"
	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/list"
	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
)

// Exit codes.
const (
	exitFailure = 1 // an error while running
	exitUsage   = 2 // wrong flags or arguments
)

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
	if text := logging.OneLine(err); text != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), logging.ErrorMark(cmd.ErrOrStderr())+"verdict: "+text)
	}
	return exitCode(err)
}

func exitCode(err error) int {
	var usage flags.UsageError
	var ended flags.ExitError
	switch {
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &ended):
		return ended.Code
	}
	return exitFailure
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "verdict",
		Short:         "A Kubernetes Service proxy over a fixed nftables program",
		Version:       thisBuild().version, // makes cobra add the flag --version
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return flags.Wrong(fmt.Errorf("unknown command %q; see verdict --help", args[0]))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate(thisBuild().String() + "\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flags.Wrong(err) })
	root.AddCommand(newRun(), newCleanup(), newCheck(), newRender(), newValidate(), newDiff(), newDrain(), newReload(), newVersion(), demo.New(),
		list.New(), list.NewGet(), list.NewTop(), explain.New(), convert.New())
	root.AddCommand(furtherCommands()...)
	for _, cmd := range root.Commands() {
		flags.CompleteValues(cmd)
	}
	return root
}
