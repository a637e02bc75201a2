package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/dryrun"
	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/config"
)

// Exit codes of diff, as of the program diff.
const (
	exitDiffers = 1
	exitTrouble = 2
)

const diffHelp = `Compare what "verdict run" with the same flags would write with what the kernel has, element by
element. Nothing is changed.

A line with "-" is in the kernel and should not be. A line with "+" should be in the kernel and is not. The lines are
in nft syntax, or commands of ipvsadm. In the place of numbers, which each process gives anew, there is the name of
the service port in angle brackets: <default/web:http> is its cluster pool, <default/web:http local> its local pool.
"# 3 slots" is a weight.

Not compared: numbers of pools, classes and hash tables, the order of slots, affinity entries and tokens, endpoints and
clients that packets noted (the sets unanswered, refusing and held-back), counters, chains of classes, the stamp of the
latest transaction, guards of addresses of IPVS and their local routes, and real servers with weight 0, which drain. Rules are compared by the fingerprint of the program, and by the number and a
digest of the rules in each chain.

A change that the daemon is about to apply is a difference as well: run the command again after a moment. Pass the
flags that the daemon has; another --cluster-cidr, for example, is a difference.

Exit codes: 0 if there is no difference; 1 if there is one; 2 for wrong arguments, or if one of the two could not be
read.`

func newDiff() *cobra.Command {
	s := config.Default()
	o := dryrun.Options{Version: thisBuild().version}
	quiet := false
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Compare the kernel with what Services and endpoints ask for",
		Long:  diffHelp,
		Example: `  verdict diff --kubeconfig /etc/kubernetes/kubelet.conf --cluster-cidr 10.244.0.0/16
  verdict diff --manifests /etc/verdict/manifests
  verdict diff --manifests new && echo nothing would change`,
		Args: flags.None,
	}
	flags.Bind(cmd.Flags(), &s, flags.Source, flags.Backend, flags.Budgets, flags.Log)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing; the exit code says whether there is a difference")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.Prepare(&s); err != nil {
			return err
		}
		r, err := dryrun.New(&s, &o, logging.New(cmd.ErrOrStderr(), &s))
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if quiet {
			out = io.Discard
		}
		differs, err := r.Diff(cmd.Context(), out, cmd.ErrOrStderr())
		switch {
		case err != nil:
			return flags.ExitError{Code: exitTrouble, Text: "compare: " + logging.OneLine(err)}
		case differs:
			return flags.ExitError{Code: exitDiffers}
		}
		return nil
	}
	return cmd
}
