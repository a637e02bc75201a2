package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/config"
)

func newRender() *cobra.Command {
	s := config.Default()
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Print the complete ruleset in nft syntax without touching the kernel",
		Long: `Print what "verdict run" would put into the kernel of this host, for a folder of manifests or for a cluster,
in nft syntax: "nft -c -f -" accepts it. Problems with objects go to standard error.`,
		Args: noArguments,
	}
	bindSource(cmd.Flags(), &s)
	bindLog(cmd.Flags(), &s)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := prepare(&s); err != nil {
			return err
		}
		log := newLogger(cmd.ErrOrStderr(), &s)
		text, err := render(cmd.Context(), &s, log)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	return cmd
}
