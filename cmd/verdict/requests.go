package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

func newDrain() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drain",
		Short: "Have the daemon stop serving without breaking connections",
		Long: `Have the daemon of this host stop serving, and wait until it has ended:

  1. The addresses of --manage-addresses leave, and /readyz and /healthz answer 503, so that routers and other balancers
     send their packets elsewhere. New connections that still arrive are served for the time of --settle.
  2. New connections are dropped: their clients try again, and reach another balancer. Open connections go on.
  3. The daemon ends when no connection is open, or after --timeout.

Then the rules stay and drop new connections, until the daemon starts again or "verdict cleanup" removes them. Only a daemon
with --manifests drains.`,
		Args: flags.None,
	}
	how := socket.Drain{Settle: 5 * time.Second, Timeout: 5 * time.Minute}
	cmd.Flags().DurationVar(&how.Settle, "settle", how.Settle, "`TIME` for which new connections are still served after the addresses have left")
	cmd.Flags().DurationVar(&how.Timeout, "timeout", how.Timeout, "`TIME` for which open connections may go on")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if how.Settle < 0 || how.Timeout < 0 {
			return flags.Wrong(errors.New("--settle and --timeout must not be negative"))
		}
		return drain(cmd.Context(), how, cmd.OutOrStdout())
	}
	return cmd
}

// drain prints the steps until the daemon has ended. If it is interrupted, the daemon goes on alone.
func drain(ctx context.Context, how socket.Drain, out io.Writer) error {
	client, answer := socket.NewClient(), make(chan error, 1)
	go func() { answer <- client.Drain(how) }()
	drained := false
	for printed := ""; ; {
		status, err := client.Status()
		draining := err == nil && status.Drain != ""
		switch {
		case drained && !draining: // it has ended; perhaps another one has begun
			fmt.Fprintln(out, "the daemon has ended")
			return nil
		case draining && status.Drain != printed:
			printed = status.Drain
			fmt.Fprintln(out, printed)
		}
		select {
		case err := <-answer:
			if err != nil {
				return fmt.Errorf("drain: the daemon has not drained: %w", err)
			}
			drained = true
		case <-ctx.Done():
			return fmt.Errorf("drain: interrupted; the daemon goes on with it: %w", ctx.Err())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func newReload() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Have the daemon read its files again",
		Long: `Have the daemon of this node read its manifests and its configuration file again, and wait until the kernel has what
they ask for. The daemon follows both anyway: the command says when that is done, and what cannot be used. In that case the
exit status is 1, and everything else is in force. SIGHUP does the same without an answer.`,
		Args: flags.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			client := socket.NewClient()
			if status, err := client.Status(); err == nil && status.Manifests != "" { // otherwise, reload says what is wrong
				noteIgnored(cmd, status.Manifests)
			}
			if err := client.Reload(); err != nil {
				return fmt.Errorf("reload: %w", err)
			}
			return nil
		},
	}
}
