package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/verdict-proxy/verdict/cmd/verdict/claim"
	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/ipvs"
	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/cmd/verdict/loopback"
	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
	"github.com/verdict-proxy/verdict/cmd/verdict/takeover"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/proxier/addresses"
)

func newCleanup() *cobra.Command {
	s := config.Default()
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that Verdict has created in the kernel",
		Long: `Remove everything that Verdict has created in the kernel of this node: its tables, virtual servers, local routes,
addresses and sysctls. Stop the proxy first. If another Service proxy is to serve this node, start that one before: connections then
find a translation all the time. A pod of kube-proxy runs before its rules are there; --await-kube-proxy waits for them.
"verdict run --cleanup" does the same without a wait.`,
		Args: flags.None,
	}
	flags.Bind(cmd.Flags(), &s, flags.Log)
	await := cmd.Flags().Duration("await-kube-proxy", 0,
		"wait at most `TIME` until kube-proxy has written its rules, if the node has one; an error, if it has written none by then")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := flags.Prepare(&s); err != nil {
			return err
		}
		log := logging.New(cmd.ErrOrStderr(), &s)
		return cleanUp(cmd.Context(), *await, log)
	}
	return cmd
}

// cleanUp makes sure that no daemon works, because it would write again what is removed, and waits for the next proxy. Then
// it removes everything.
func cleanUp(ctx context.Context, patience time.Duration, log *slog.Logger) (err error) {
	held, err := claim.Take(ctx, claim.CleanupPatience, log)
	if err != nil {
		return fmt.Errorf("clean up: %w; nothing was removed", err)
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	if err := takeover.NewWait(patience, preflight.HasIPv6()).Await(ctx, log); err != nil {
		return err
	}
	return removeAll(log)
}

// removeAll takes the addresses of frontends off the host, restores the sysctl route_localnet, removes everything in IPVS, restores its sysctls, and removes both tables. In
// this order, the guards in the tables outlive what they protect.
func removeAll(log *slog.Logger) error {
	if err := addresses.CleanUp(log); err != nil {
		return fmt.Errorf("clean up: %w; nothing else was removed", err)
	}
	if err := loopback.Retire(log); err != nil {
		return fmt.Errorf("clean up: %w; nothing else was removed", err)
	}
	successor, err := takeover.HandOver(log)
	if err != nil {
		return err
	}
	if err := ipvs.CleanUp(log); err != nil {
		return err
	}
	if err := ipvs.RestoreSysctls(successor, log); err != nil {
		return fmt.Errorf("clean up: %w; no table was removed", err)
	}
	if err := kernel.Cleanup(kernel.Options{}); err != nil {
		return fmt.Errorf("clean up: %w; no table was removed", err)
	}
	log.Info("removed", "tables", "ip verdict, ip6 verdict")
	return nil
}
