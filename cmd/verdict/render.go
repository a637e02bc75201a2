package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/source"
	"github.com/verdict-proxy/verdict/proxier/state"
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

// render runs one pass of the loop into a recorder instead of the kernel.
func render(ctx context.Context, s *config.Settings, log *slog.Logger) (string, error) {
	store := state.NewStore()
	if err := loadOnce(ctx, s, store, log); err != nil {
		return "", err
	}
	r := &recorder{ports: map[string]*nft.Port{}}
	loop := proxier.New(proxier.Options{
		Settings: s, Store: store, Ruleset: r, Flows: noFlows{}, Primary: source.PrimaryAddresses, Observer: silent{}, Log: log,
	})
	if err := loop.Once(); err != nil {
		return "", err
	}
	return nft.Render(r.sorted(), r.globals)
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

// recorder keeps what the loop would hand to the nft engine.
type recorder struct {
	ports   map[string]*nft.Port
	globals nft.Globals
}

func (r *recorder) Set(p *nft.Port) error {
	r.ports[p.Family.String()+" "+p.Name] = p
	return nil
}

func (r *recorder) Delete(f nft.Family, name string) { delete(r.ports, f.String()+" "+name) }
func (r *recorder) SetGlobals(g nft.Globals)         { r.globals = g }
func (r *recorder) Apply() (nft.Result, error)       { return nft.Result{}, nil }
func (r *recorder) Intact() (bool, error)            { return true, nil }

func (r *recorder) Guard([]netip.Addr) (bool, error) { return true, nil }
func (r *recorder) Unguard([]netip.Addr)             {}

// sorted lists the ports in a fixed order, so that two renderings of the same objects are equal.
func (r *recorder) sorted() []nft.Port {
	var out []nft.Port
	for _, key := range slices.Sorted(maps.Keys(r.ports)) {
		out = append(out, *r.ports[key])
	}
	return out
}

// noFlows leaves connection tracking alone.
type noFlows struct{}

func (noFlows) Clean(conntrack.Stale, []netip.Addr) ([]conntrack.Result, error) { return nil, nil }

// silent observes nothing: problems are logged by the loop itself.
type silent struct{}

func (silent) Pending(time.Time)               {}
func (silent) PassDone(proxier.PassReport)     {}
func (silent) FlowsCleaned([]conntrack.Result) {}
func (silent) Problems([]state.Problem)        {}
