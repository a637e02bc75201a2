package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/convert"
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
		if strings.Contains(text, unix.EPERM.Error()) {
			text += "; run this command as root, because it needs CAP_NET_ADMIN"
		}
		fmt.Fprintln(cmd.ErrOrStderr(), logging.ErrorMark(cmd.ErrOrStderr())+"verdict: "+text)
	}
	if _, ok := errors.AsType[flags.UsageError](err); ok {
		return exitUsage
	}
	if ended, ok := errors.AsType[flags.ExitError](err); ok {
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
	root.SetFlagErrorFunc(flags.WrongValue)
	root.AddCommand(newRun(), newCleanup(), newCheck(), newRender(), newValidate(), newDiff(), newDrain(), newLeave(), newReload(), newVersion(),
		list.New(), list.NewGet(), list.NewTop(), explain.New(), convert.New())
	root.AddCommand(furtherCommands()...)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		flags.CompleteValues(cmd)
		if parent := map[string]*cobra.Command{"help": root, "completion": cmd}[cmd.Name()]; parent != nil {
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, func(_ *cobra.Command, args []string) error { // cobra's own prints the help of something else, and succeeds
				found, rest, err := parent.Find(args)
				if err != nil || len(rest) > 0 {
					return flags.Wrong(fmt.Errorf("unknown command %q; see verdict --help", strings.Join(args, " ")))
				}
				found.InitDefaultHelpFlag()
				return found.Help()
			}
		}
	}
	return root
}

// readingCommands are the commands that read what a daemon on this node wrote.
var readingCommands = []string{"list", "get", "top", "explain", "diff"}

// gentle is the nice value of a command that reads. Beside a daemon that wants the same processor, it gets a tenth.
const gentle = 10

// giveWay lowers the priority of a command that reads, so that the daemon does not wait for a processor before it writes
// a change (BenchmarkPassBeside in e2e/daemon).
func giveWay(cmd *cobra.Command) {
	for cmd.HasParent() && !slices.Contains(readingCommands, cmd.Name()) {
		cmd = cmd.Parent()
	}
	if !cmd.HasParent() {
		return
	}
	// New threads have the priority of the thread that makes them. Where this is not possible, the command works as it is.
	threads, _ := os.ReadDir("/proc/self/task")
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, id, gentle)
		}
	}
}
