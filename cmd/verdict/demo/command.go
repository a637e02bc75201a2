package demo

import (
	"github.com/spf13/cobra"
)

// ExitInterrupted is the exit code after an interrupt, as shells have it: 128 and the signal's number.
const ExitInterrupted = 130

// ExitError ends the program with a code. Without a text, what went wrong has been said already.
type ExitError struct {
	Code int
	Text string
}

func (e ExitError) Error() string { return e.Text }

// New makes the command; args checks that it is called without arguments.
func New(args cobra.PositionalArgs) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show connections being balanced between network namespaces of its own",
		Long: `Make a node, pods and a client, each in a network namespace; run the real proxy on a folder of manifests; send
connections through a cluster IP and a node port; draw how they were spread; remove an endpoint and show that the
traffic moved. It takes a few seconds, needs nothing but this binary and leaves nothing behind.
It works as root, and without root where unprivileged user namespaces are allowed.`,
		Args: args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runOutside(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.AddCommand(newStage())
	return cmd
}

// stageName is the hidden command with which the program starts itself again.
const stageName = "stage"

func newStage() *cobra.Command {
	var s stage
	cmd := &cobra.Command{
		Use:    stageName,
		Short:  "The demo inside its namespaces; started by the demo itself",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.out = cmd.OutOrStdout()
			return s.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&s.outside, "outside", "", "mount namespace of the program that started this one")
	cmd.Flags().BoolVar(&s.rootless, "rootless", false, "inside a user namespace")
	return cmd
}
