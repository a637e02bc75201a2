package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
	"github.com/verdict-proxy/verdict/cmd/verdict/snapshot"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
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
	var o renderOptions
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
	flags.BindSource(cmd.Flags(), &s)
	flags.BindBackend(cmd.Flags(), &s)
	flags.BindBudgets(cmd.Flags(), &s)
	flags.BindLog(cmd.Flags(), &s)
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing; the exit code tells whether there is a difference")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.Prepare(&s); err != nil {
			return err
		}
		r, err := newRenderer(&s, &o, logging.New(cmd.ErrOrStderr(), &s))
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if quiet {
			out = io.Discard
		}
		return r.diff(cmd.Context(), out, cmd.ErrOrStderr())
	}
	return cmd
}

// diff prints the differences.
func (r *renderer) diff(ctx context.Context, stdout, stderr io.Writer) error {
	trouble := func(err error) error {
		return flags.ExitError{Code: exitTrouble, Text: "compare: " + logging.OneLine(err)}
	}
	want, err := r.wanted(ctx)
	if err != nil {
		return trouble(err)
	}
	fmt.Fprint(stderr, r.problems.take())
	have, err := inKernel(stderr)
	if err != nil {
		return trouble(err)
	}
	differs, err := have.differences(want, stdout)
	if err != nil {
		return trouble(fmt.Errorf("write the differences: %w", err))
	}
	if differs {
		return flags.ExitError{Code: exitDiffers}
	}
	return nil
}

// contents is what both engines have.
type contents struct {
	lines   []inspect.Line
	servers []string // commands of ipvsadm, sorted
}

// wanted runs a pass in memory.
func (r *renderer) wanted(ctx context.Context) (c contents, err error) {
	if err := r.load(ctx, r.folder()); err != nil {
		return c, err
	}
	if err := r.loop.Once(); err != nil {
		return c, err
	}
	if c.lines, err = r.memory.Ruleset.Content(); err != nil {
		return c, err
	}
	c.lines = slices.DeleteFunc(c.lines, func(l inspect.Line) bool { return l.Family == program.IPv6 && !preflight.HasIPv6() })
	if r.memory.Servers != nil {
		servers, err := r.memory.Servers.List()
		c.servers = commandsOf(servers)
		return c, err
	}
	return c, nil
}

// inKernel reads both engines of this host.
func inKernel(stderr io.Writer) (c contents, err error) {
	lines, torn, err := inspect.Content(kernel.Options{})
	if err != nil {
		return c, snapshot.AsRoot(err)
	}
	if torn {
		fmt.Fprintln(stderr, "verdict: the tables changed during every attempt to read them, so some differences may be gone")
	}
	c.lines = lines
	servers, err := snapshot.VirtualServers()
	c.servers = commandsOf(servers)
	return c, err
}

func commandsOf(servers []ipvsctl.Status) (out []string) {
	for i := range servers {
		out = append(out, servers[i].Commands()...)
	}
	slices.Sort(out)
	return out
}

// differences prints what only one of the two has, and reports whether there is anything.
func (c *contents) differences(want contents, out io.Writer) (bool, error) {
	extra, missing := inspect.Difference(c.lines, want.lines)
	differs := len(extra)+len(missing) > 0 || !slices.Equal(c.servers, want.servers)
	w := bufio.NewWriter(out)
	if differs {
		fmt.Fprintln(w, "--- kernel\n+++ wanted")
	}
	for len(extra) > 0 || len(missing) > 0 {
		// Lines of one set stand together, those of the kernel first.
		if len(missing) == 0 || len(extra) > 0 && !isLater(extra[0], missing[0]) {
			fmt.Fprintln(w, "-"+extra[0].String())
			extra = extra[1:]
			continue
		}
		fmt.Fprintln(w, "+"+missing[0].String())
		missing = missing[1:]
	}
	writeServers(w, c.servers, want.servers)
	return differs, w.Flush()
}

// isLater reports whether a line belongs to a later set than another one.
func isLater(a, b inspect.Line) bool {
	return a.Family > b.Family || a.Family == b.Family && a.Set > b.Set
}

func writeServers(w io.Writer, have, want []string) {
	for _, side := range []struct {
		mark      string
		from, not []string
	}{{"-", have, want}, {"+", want, have}} {
		for _, line := range side.from {
			if _, found := slices.BinarySearch(side.not, line); !found {
				fmt.Fprintln(w, side.mark+line)
			}
		}
	}
}
