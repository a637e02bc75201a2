package demo

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
)

// New returns the command.
func New() *cobra.Command {
	st := &story{backends: []string{"pod-a", "pod-b", "pod-c"}}
	var outside string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Balance connections between network namespaces that the demo creates",
		Long: `Create a node and pods, each in a network namespace. Run the real proxy on a folder of manifests, send connections to
a cluster IP, and draw how they are spread. Remove an endpoint while connections continue, and show that the traffic
moves. Then print what "verdict list" and "verdict explain" say. The demo takes a few seconds, needs nothing but this
binary, and leaves nothing behind.
It works as root, and also without root where unprivileged user namespaces are allowed.`,
		Args: flags.None,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if !cmd.Flags().Changed("inside") {
				return runOutside(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
			}
			st.out = cmd.OutOrStdout()
			if st.dir, err = enter(outside); err == nil {
				err = st.tell()
			}
			if err != nil {
				return fmt.Errorf("demo: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&outside, "inside", "", "the mount namespace of the process outside")
	cmd.Flags().StringVar(&st.how, "how", "", "how the namespaces were created")
	for _, name := range []string{"inside", "how"} { // what the process outside passes to the one that it starts inside namespaces
		_ = cmd.Flags().MarkHidden(name) // the flag exists
	}
	return cmd
}
