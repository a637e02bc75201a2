package demo

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
)

// act is what the demo shows in one scene.
type act struct {
	annotation string // of the Service
	steps      []func(*story) error
}

const sceneBalance = "balance"

// scenes returns the scenes by their names.
func scenes() map[string]act {
	asked := []func(*story) error{(*story).build, (*story).start, (*story).untilAsked, (*story).connect}
	return map[string]act{
		sceneBalance: {steps: []func(*story) error{
			(*story).build, (*story).start, (*story).connect, (*story).remove,
		}},
		"dead-node":      {ejectAnnotation, append(asked[:4:4], (*story).vanish)},
		"rolling-update": {refusalsAnnotation, append(asked[:4:4], (*story).rollOut)},
	}
}

// New returns the command.
func New() *cobra.Command {
	name := sceneBalance
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Balance connections between network namespaces that the demo creates",
		Long: `Create a node, pods and a client, each in a network namespace. Run the real proxy on a folder of manifests, send
connections to a cluster IP and a node port, and draw how they are spread. Then remove an endpoint and show that the
traffic moves. The demo takes a few seconds, needs nothing but this binary, and leaves nothing behind.
It works as root, and also without root where unprivileged user namespaces are allowed.`,
		Args: flags.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if scenes()[name].steps == nil {
				return fmt.Errorf("--scene=%s: must be balance, dead-node or rolling-update", name)
			}
			return runOutside(cmd.Context(), name, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().StringVar(&name, "scene", name,
		"`NAME` of what is shown: balance; dead-node, in which a pod vanishes without a word; or rolling-update, in which pods just exit")
	cmd.AddCommand(newStage())
	return cmd
}

func newStage() *cobra.Command {
	st := &story{}
	var outside, name string
	cmd := &cobra.Command{
		Use:    stageName,
		Short:  "The demo inside its namespaces; \"verdict demo\" starts it",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			dir, err := enter(outside)
			if err == nil {
				st.dir, st.out, st.annotation = dir, cmd.OutOrStdout(), scenes()[name].annotation
				err = st.tell(scenes()[name].steps)
			}
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&outside, "outside", "", "mount namespace of the program that started this one")
	cmd.Flags().StringVar(&name, "scene", sceneBalance, "what is shown")
	cmd.Flags().BoolVar(&st.rootless, "rootless", false, "inside a user namespace")
	return cmd
}

// tell runs the whole demo in the namespaces of this process. After an error this process ends, and then the kernel ends the
// proxy.
func (st *story) tell(steps []func(*story) error) error {
	began := time.Now()
	for _, step := range steps {
		if err := step(st); err != nil {
			return err
		}
	}
	if err := st.proxy.stop(); err != nil {
		return err
	}
	st.heading("Done in %.1f s", time.Since(began).Seconds())
	st.say("The proxy has stopped. The namespaces, rules, processes and files of the demo disappear with this program.")
	return nil
}
