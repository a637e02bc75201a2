package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/verdict-proxy/verdict/cmd/verdict/claim"
	"github.com/verdict-proxy/verdict/cmd/verdict/events"
	"github.com/verdict-proxy/verdict/cmd/verdict/flags"
	"github.com/verdict-proxy/verdict/cmd/verdict/ipvs"
	"github.com/verdict-proxy/verdict/cmd/verdict/logging"
	"github.com/verdict-proxy/verdict/cmd/verdict/loopback"
	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
	"github.com/verdict-proxy/verdict/cmd/verdict/objects"
	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
	"github.com/verdict-proxy/verdict/cmd/verdict/restclient"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/cmd/verdict/takeover"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/source/host"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// Options are what "verdict run" sets.
type Options struct {
	CommandLine       *flags.CommandLine
	Hangups           <-chan os.Signal
	Version, Revision string
	Log               *slog.Logger
}

// Run connects the parts of the daemon and runs them until the context ends or a part returns an error.
func Run(ctx context.Context, o Options) (err error) {
	s, log := &o.CommandLine.Settings, o.Log
	log.Info("starting", "version", o.Version, "revision", o.Revision, "node", s.NodeName, "backend", string(s.Backend))
	registry := prometheus.NewRegistry()
	if err := restclient.Register(registry); err != nil { // before the first client
		return err
	}
	store := state.NewStore()
	client, err := objects.NewClient(s, o.Version, store.AddServer)
	if err != nil {
		return err
	}
	held, err := claim.Take(ctx, claim.Patience, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Close()) }()
	guard := loopback.NewKeeper(log)
	if err := guard.Set(s); err != nil {
		return err
	}
	if o.CommandLine.TakeOver {
		takeover.AdoptVirtualServers(ipvs.Options(s), log)
	}
	k, err := openKernel(s, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	new(nodesetup.Host).Apply(&s.Node, log)
	ipvs.SetLiberal(s.Node.Conntrack.TCPBeLiberal, log)
	passing := &passing{store: store, ipvs: k.balancer != nil}
	notes, observers, err := openObservers(&o, registry, store, k, passing)
	if err != nil {
		return err
	}
	interference, reconfigured := make(chan dataplane.Interference, 64), make(chan *config.Settings)
	health, err := newHealth(s, store, k, observers, log)
	if err != nil {
		return err
	}
	files := newReloader(o.CommandLine.File, s, store, observers.journal)
	loop := proxier.New(proxier.Options{
		Settings: s, Store: store, Dataplane: k.dataplane(store), Empty: k.empty, Flows: k.flows, Former: formerFrontends(k.engine, log), Adopted: adoptedFrontends(k.balancer),
		Primary: host.Primary, APIServers: objects.APIServers(s), Observer: observers, Log: log,
		NoIPv6: !slices.Contains(k.families, program.IPv6), Interference: interference, Reconfigured: reconfigured,
		Accounts: observers.accounts, Health: health, SlowPath: k.slowPath, BridgesStay: kernel.BridgesStay,
		Turned: observers.proxy.Turned,
	})
	group, ctx := errgroup.WithContext(ctx)
	daemon := observers.daemon(store, health)
	systemd := supervise(observers, daemon, files, o.Hangups)
	drain := drainer{
		store: store, proxy: observers.proxy, passing: passing, can: s.Manifests != "",
		begin: make(chan socket.Drain, 1), ended: make(chan struct{}), log: log,
	}
	daemon.Reload, daemon.Drain, daemon.Draining, daemon.Leave, daemon.End, daemon.Passing, daemon.FastPath =
		systemd.reload, drain.drain, drain.draining, drain.leave, passing.end, passing.read,
		func(service string) socket.FastPath { return observers.onRules(k, service) }
	if err := observers.listen(ctx, group, daemon); err != nil {
		return err
	}
	observers.answerStatus(ctx, group, daemon)
	objects.Start(ctx, group, s, client, store, objects.Reports{
		Readable: observers.metrics.Readable, Missing: observers.proxy.SetMissing,
		Copies: objects.StateFile(s.StateDir, objects.Copies, log), Serving: inspect.Serving, Now: files.manifests,
	}, log)
	group.Go(func() error {
		return flags.Follow(ctx, o.CommandLine, files.config, goLive(ctx, observers, guard, reconfigured, store, log), log)
	})
	group.Go(func() error { return k.watch(ctx, guard, interference, log) })
	for _, run := range []func(context.Context) error{notes.Run, loop.Run, health.Run, guard.Run, systemd.run, drain.run, newFullWatch(procRoot, log).run} {
		group.Go(func() error { return run(ctx) })
	}
	return group.Wait()
}

// openObservers makes what the loop reports to.
func openObservers(of *Options, registry *prometheus.Registry, store *state.Store, k *kernelSide, p *passing) (*events.Recorder, *observers, error) {
	s, log := &of.CommandLine.Settings, of.Log
	client, err := objects.NewEventClient(s, of.Version)
	if err != nil {
		return nil, nil, err
	}
	notes := events.New(client, s.NodeName, store, log)
	o, err := newObservers(of, registry, notes, store)
	if err != nil {
		return nil, nil, err
	}
	if of.CommandLine.TakeOver {
		o.takeOver = sync.OnceFunc(func() { takeover.Run(log) })
	}
	o.refused, p.settings = preflight.ExplainRefusal(k.families, log), o.inForce.Load
	return notes, o, o.scrapeKernel(k, p)
}

// goLive returns a function that makes settings take effect. They differ from those before in live ones only. If it
// returns an error, the settings before are in force.
func goLive(ctx context.Context, o *observers, guard *loopback.Keeper, loop chan<- *config.Settings, store *state.Store, log *slog.Logger) func(*config.Settings) error {
	return func(s *config.Settings) error {
		if err := guard.Set(s); err != nil {
			return err
		}
		logging.SetVerbosity(s.Verbosity)
		new(nodesetup.Host).Apply(&s.Node, log)
		ipvs.SetLiberal(s.Node.Conntrack.TCPBeLiberal, log)
		o.inForce.Store(s)
		select {
		case loop <- s:
			store.SettingsChanged() // afterwards: a reload waits until the kernel has what these settings ask for
		case <-ctx.Done():
		}
		return nil
	}
}
