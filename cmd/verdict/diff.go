package main

import (
	"bytes"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/dryrun"
	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

// Exit codes of diff, as of the program diff.
const (
	exitDiffers = 1
	exitTrouble = 2
)

const diffHelp = `Print what "verdict run" with the same flags would write now, as nft commands: what the kernel lacks, and what it should not
have. Nothing is changed.

The command starts as the daemon does: it reads the tables, gives service ports the numbers that they have there, and compares
each element, rule and set. An element that names no service port has its name in a comment behind it. Changes of IPVS follow as
commands of ipvsadm and ip, in comments.

Left out is what the daemon keeps for later: chains of classes and of prefix lengths that nothing needs now. Affinity entries,
counters, and the endpoints and clients that packets noted (the sets unanswered, refusing and held-back) are not compared. Rules
are compared by a digest of their bytecode.

A change that the daemon is about to apply is a difference as well: run the command again after a moment. Pass the
flags that the daemon has; another --cluster-cidr, for example, is a difference. Without a source of objects, those are read that
the daemon of this node reads with --manifests. Of a manifest that cannot be read, the last good copy in --state-dir counts, as
for a daemon that starts.

Exit codes: 0 if there is no difference; 1 if there is one; 2 for wrong arguments, or if one of the two could not be
read.`

func newDiff() *cobra.Command {
	o := dryrun.Options{Version: thisBuild().version}
	quiet, output := false, flags.Output{}
	cmd := &cobra.Command{
		Use:   "diff",
		Short: "Print, as nft commands, what the kernel lacks of what Services ask for",
		Long:  diffHelp,
		Example: `  verdict diff --kubeconfig /etc/kubernetes/kubelet.conf --cluster-cidr 10.244.0.0/16
  verdict diff --manifests /etc/verdict/manifests
  verdict diff --manifests new && echo nothing would change`,
		Args: flags.None,
	}
	c := flags.New(cmd.Flags())
	s := &c.Settings
	output.Bind(cmd.Flags())
	cmd.Flags().BoolVarP(&quiet, "quiet", "q", false, "print nothing; the exit code says whether there is a difference")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if s.Manifests == "" && s.Kubeconfig == "" && s.Master == "" && c.File == "" {
			status, _ := socket.NewClient().Status() // without a daemon, there is no folder to find
			s.Manifests = status.Manifests
		}
		if err := c.Resolve(); err != nil {
			return err
		}
		var out, notes bytes.Buffer
		differs, err := dryrun.Diff(cmd.Context(), s, &o, logging.New(cmd.ErrOrStderr(), s), &out, io.MultiWriter(&notes, cmd.ErrOrStderr()))
		if err == nil && !quiet {
			value := map[string]any{"differs": differs, "changes": lines(out.String()), "notes": lines(notes.String())}
			err = output.Write(cmd.OutOrStdout(), value, func(w io.Writer) error { _, err := out.WriteTo(w); return err })
		}
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

func lines(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}
