package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// Exit codes, as those of "verdict diff".
const (
	exitDiffers = 1
	exitTrouble = 2
)

// errDiffers ends a command that has said what differs.
var errDiffers = errors.New("nodes differ")

const help = `Ask the Verdict of each node, and say where the answers differ.

The commands run in the pods of the DaemonSet (pods/exec). Whoever may do that is root on all nodes, because those pods
are. A node that does not answer within --timeout is named; the others do not wait for it.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newRoot().ExecuteContext(ctx)
	stop()
	switch {
	case errors.Is(err, errDiffers):
		os.Exit(exitDiffers)
	case err != nil:
		fmt.Fprintln(os.Stderr, "kubectl verdict:", err)
		os.Exit(exitTrouble)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use: "kubectl-verdict", Short: "Ask the Verdict of each node", Long: help, SilenceErrors: true, SilenceUsage: true,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl verdict"},
	}
	f := &fleet{}
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	fs := root.PersistentFlags()
	fs.StringVar(&rules.ExplicitPath, "kubeconfig", "", "`FILE` with access to the API server")
	clientcmd.BindOverrideFlags(overrides, fs, clientcmd.RecommendedConfigOverrideFlags(""))
	fs.StringVar(&f.daemons, "daemon-namespace", "kube-system", "`NAMESPACE` of the DaemonSet")
	fs.StringSliceVar(&f.only, "node", nil, "ask only these `NODES`")
	fs.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long a node may take")
	fs.IntVar(&f.parallel, "parallel", 50, "ask this `NUMBER` of nodes at a time")
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
		if f.config, err = loader.ClientConfig(); err != nil {
			return fmt.Errorf("read the kubeconfig: %w", err)
		}
		if f.namespace, _, err = loader.Namespace(); err != nil {
			return fmt.Errorf("read the kubeconfig: %w", err)
		}
		f.config.Timeout, f.config.QPS = 0, -1 // each node has a timeout, and all are asked at once
		f.client, err = kubernetes.NewForConfig(f.config)
		f.out, f.notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
		return err
	}
	root.AddCommand(f.newList(), f.newTop(), f.newDiff(), f.newExplain(),
		f.newOther("get", "Say which endpoint a client stays with, and others of its kind; arguments as of verdict get"),
		f.newOther("check", "Check whether each node can be served"),
		f.newOther("version", "Print the versions"))
	return root
}

// newOther makes a command that prints what "verdict" prints, once for all nodes that say the same.
func (f *fleet) newOther(name, short string) *cobra.Command {
	return &cobra.Command{Use: name + " [ARGUMENT]...", Short: short, RunE: func(cmd *cobra.Command, args []string) error {
		answers, err := f.ask(cmd.Context(), func(daemon) []string { return append([]string{name}, args...) })
		if err != nil {
			return err
		}
		return f.printSame(answers, func(a answer) string { return a.stdout + a.stderr })
	}}
}
