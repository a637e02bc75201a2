package demo

import (
	"fmt"

	"github.com/spf13/cobra"
)

// ExitInterrupted is the exit code after an interrupt: 128 plus the number of the signal, as in shells.
const ExitInterrupted = 130

// ExitError makes the program exit with a code. Text is empty if the error has been printed already.
type ExitError struct {
	Code int
	Text string
}

func (e ExitError) Error() string { return e.Text }

// New returns the command. args checks that there are no arguments.
func New(args cobra.PositionalArgs) *cobra.Command {
	scene := sceneBalance
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Balance connections between network namespaces that the demo creates",
		Long: `Create a node, pods and a client, each in a network namespace. Run the real proxy on a folder of manifests, send
connections to a cluster IP and a node port, and draw how they are spread. Then remove an endpoint and show that the
traffic moves. The demo takes a few seconds, needs nothing but this binary, and leaves nothing behind.
It works as root, and also without root where unprivileged user namespaces are allowed.`,
		Args: args,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if scene != sceneBalance && scene != sceneDeadNode && scene != sceneRollingUpdate {
				return fmt.Errorf("--scene=%s: must be %s, %s or %s", scene, sceneBalance, sceneDeadNode, sceneRollingUpdate)
			}
			return runOutside(cmd.Context(), scene, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&scene, "scene", scene,
		"`NAME` of what is shown: balance; dead-node, in which a pod vanishes without a word; or rolling-update, in which pods just exit")
	cmd.AddCommand(newStage())
	return cmd
}

// stageName is the hidden command that the process outside runs inside the namespaces.
const stageName = "stage"

func newStage() *cobra.Command {
	var s stage
	cmd := &cobra.Command{
		Use:    stageName,
		Short:  "The demo inside its namespaces; \"verdict demo\" starts it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s.out = cmd.OutOrStdout()
			return s.run(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&s.outside, "outside", "", "mount namespace of the program that started this one")
	cmd.Flags().StringVar(&s.scene, "scene", sceneBalance, "what is shown")
	cmd.Flags().BoolVar(&s.rootless, "rootless", false, "inside a user namespace")
	return cmd
}
