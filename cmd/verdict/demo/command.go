package demo

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
)

// ExitError makes the program exit with a code. Text is empty if the error has been printed already.
type ExitError struct {
	Code int
	Text string
}

func (e ExitError) Error() string { return e.Text }

// The scenes of the demo.
const (
	sceneBalance       = "balance"
	sceneDeadNode      = "dead-node"
	sceneRollingUpdate = "rolling-update"
)

// New returns the command. args checks that there are no arguments.
func New() *cobra.Command {
	scene := sceneBalance
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Balance connections between network namespaces that the demo creates",
		Long: `Create a node, pods and a client, each in a network namespace. Run the real proxy on a folder of manifests, send
connections to a cluster IP and a node port, and draw how they are spread. Then remove an endpoint and show that the
traffic moves. The demo takes a few seconds, needs nothing but this binary, and leaves nothing behind.
It works as root, and also without root where unprivileged user namespaces are allowed.`,
		Args: flags.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains([]string{sceneBalance, sceneDeadNode, sceneRollingUpdate}, scene) {
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
	st := &story{}
	var outside string
	cmd := &cobra.Command{
		Use:    stageName,
		Short:  "The demo inside its namespaces; \"verdict demo\" starts it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := enter(outside)
			if err == nil {
				st.dir, st.out = dir, cmd.OutOrStdout()
				err = st.tell()
			}
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&outside, "outside", "", "mount namespace of the program that started this one")
	cmd.Flags().StringVar(&st.scene, "scene", sceneBalance, "what is shown")
	cmd.Flags().BoolVar(&st.rootless, "rootless", false, "inside a user namespace")
	return cmd
}
