package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
)

func newReload() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Have the daemon read its files again",
		Long: `Have the daemon of this node read its manifests and its configuration file again, and wait until the kernel has what
they ask for. The daemon follows both anyway: the command says when that is done, and what cannot be used. In that case the
exit status is 1, and everything else is in force. SIGHUP does the same without an answer.`,
		Args: flags.None,
		RunE: func(*cobra.Command, []string) error {
			if err := socket.NewClient().Reload(); err != nil {
				return fmt.Errorf("reload: %w", err)
			}
			return nil
		},
	}
}
