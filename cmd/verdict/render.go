package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/dryrun"
	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
)

func newRender() *cobra.Command { return newRenderFor((*dryrun.Renderer).Run) }

// newRenderFor returns the command with another function in place of Renderer.Run. Tests use it to run the loop in
// another way with the same flags.
func newRenderFor(run func(*dryrun.Renderer, context.Context, io.Writer, io.Writer) error) *cobra.Command {
	o := dryrun.Options{Version: thisBuild().version}
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Print the complete ruleset in nft syntax without touching the kernel",
		Long: `Print what "verdict run" would write into the kernel of this host, for a folder of manifests or for a cluster. The
output is in nft syntax, which "nft -c -f -" accepts. Virtual servers of IPVS follow as comments in the syntax of
ipvsadm. Problems of objects go to standard error.

With --then, the output continues with the changes from one folder of manifests to the next, one transaction for each
folder.`,
		Example: `  verdict render --manifests /etc/verdict/manifests
  verdict render --manifests today --then tomorrow --elements`,
		Args: flags.None,
	}
	c := flags.New(cmd.Flags())
	s := &c.Settings
	cmd.Flags().BoolVar(&o.AssumeIPVS, "assume-ipvs", false,
		"render for a kernel that has IPVS with all schedulers, even if this one does not")
	cmd.Flags().StringSliceVar(&o.Addresses, "assume-addresses", nil,
		"render for a host with these `ADDRESSES`; the first one of each family is its main address")
	cmd.Flags().StringArrayVar(&o.Then, "then", nil,
		"also print the changes that lead to the manifests in `DIR`; may be repeated")
	cmd.Flags().BoolVar(&o.Elements, "elements", false,
		"print only the elements and virtual servers, without the fixed program")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.Resolve(); err != nil {
			return err
		}
		if len(o.Then) > 0 && s.Manifests == "" {
			return flags.Wrong(errors.New("--then needs --manifests"))
		}
		r, err := dryrun.New(s, &o, logging.New(cmd.ErrOrStderr(), s))
		if err != nil {
			return err
		}
		return run(r, cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}
