package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/source"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func newRender() *cobra.Command {
	s := config.Default()
	cmd := &cobra.Command{
		Use:   "render",
		Short: "Print the complete ruleset in nft syntax without touching the kernel",
		Long: `Print what "verdict run" would put into the kernel of this host, for a folder of manifests or for a cluster,
in nft syntax: "nft -c -f -" accepts it. Virtual servers of IPVS follow as comments, in the syntax of ipvsadm.
Problems with objects go to standard error.`,
		Args: noArguments,
	}
	bindSource(cmd.Flags(), &s)
	bindBackend(cmd.Flags(), &s)
	bindLog(cmd.Flags(), &s)
	assume := cmd.Flags().Bool("assume-ipvs", false, "render for a kernel that has IPVS with all schedulers, even if this one does not")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := prepare(&s); err != nil {
			return err
		}
		log := newLogger(cmd.ErrOrStderr(), &s)
		text, err := render(cmd.Context(), &s, *assume || hasIPVS(), log)
		if err != nil {
			return err
		}
		_, err = fmt.Fprint(cmd.OutOrStdout(), text)
		return err
	}
	return cmd
}

// render runs one pass of the loop into recorders instead of the kernel.
func render(ctx context.Context, s *config.Settings, ipvs bool, log *slog.Logger) (string, error) {
	store := state.NewStore()
	if err := loadOnce(ctx, s, store, log); err != nil {
		return "", err
	}
	r := &recorder{ports: map[string]*nft.Port{}}
	v := &virtualServers{ports: map[string][]ipvsctl.VirtualServer{}, exclude: config.Prefixes(s.IPVS.ExcludeCIDR)}
	options := proxier.Options{
		Settings: s, Store: store, Ruleset: r, Flows: noFlows{}, Primary: source.PrimaryAddresses, Observer: silent{}, Log: log,
		Scheduling: proxier.Scheduling{Backend: s.Backend, Standard: s.IPVS.Scheduler, Unavailable: "this kernel has none"},
	}
	if ipvs && s.Backend != config.BackendNFT {
		options.Balancer, options.Scheduling.Available = v, ipvsctl.Schedulers()
	}
	if err := proxier.New(options).Once(); err != nil {
		return "", err
	}
	servers, local := v.sorted()
	text, err := r.render(local)
	for _, o := range ipvsctl.Build(servers) {
		text += "# " + o.String() + "\n"
	}
	return text, err
}

// loadOnce fills the store and stops the sources again.
func loadOnce(ctx context.Context, s *config.Settings, store *state.Store, log *slog.Logger) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	client, err := newClient(s)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	startSources(ctx, group, s, client, store, log)
	for {
		if _, synced := store.Pending(); synced {
			stop()
			return group.Wait()
		}
		select {
		case <-store.Wake():
		case <-ctx.Done():
			return cmp.Or(group.Wait(), ctx.Err())
		}
	}
}
