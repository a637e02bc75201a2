package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/verdict-proxy/verdict/cmd/verdict/nodesetup"
	"github.com/verdict-proxy/verdict/cmd/verdict/restclient"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/proxier"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/source"
	"github.com/verdict-proxy/verdict/proxier/state"
)

func newRun() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "run",
		Version: thisBuild().version, // kube-proxy has the flag --version
		Short:   "Run the proxy of this node",
		Long: `Run the proxy of this node until SIGTERM or SIGINT. The rules stay in the kernel when the proxy stops, and
"verdict cleanup" removes them. Flags that kube-proxy has as well have the same names.`,
		Args: noArguments,
	}
	c := newCommandLine(cmd.Flags())
	cleanup := cmd.Flags().Bool("cleanup", false, "remove everything that Verdict has created in the kernel, and exit")
	initOnly := cmd.Flags().Bool("init-only", false,
		"set the sysctls and load the kernel modules, which only root may do, and exit; the daemon then needs only NET_ADMIN")
	takeOver := cmd.Flags().Bool("take-over", false, "remove what kube-proxy left on this node, when the rules of Verdict are in the kernel")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.resolve(); err != nil {
			return err
		}
		log := newLogger(cmd.ErrOrStderr(), &c.settings)
		routeClientLog(log)
		c.warn(log)
		switch {
		case *cleanup:
			return cleanUp(cmd.Context(), newHandover(0), log)
		case *initOnly:
			return initHost(&c.settings, log)
		case c.writeTo != "":
			return c.write()
		}
		return run(cmd.Context(), c, *takeOver, log)
	}
	return cmd
}

func newCleanup() *cobra.Command {
	s := config.Default()
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Remove everything that Verdict has created in the kernel",
		Long: `Remove everything that Verdict has created in the kernel of this node: its tables, virtual servers, local routes and
sysctls. Stop the proxy first. If another Service proxy is to serve this node, start that one before: connections then
find a translation all the time. A pod of kube-proxy runs before its rules are there; --await-kube-proxy waits for them.
"verdict run --cleanup" does the same without a wait.`,
		Args: noArguments,
	}
	bindLog(cmd.Flags(), &s)
	await := cmd.Flags().Duration("await-kube-proxy", 0,
		"wait at most `TIME` until kube-proxy has written its rules, if the node has one; an error, if it has written none by then")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := prepare(&s); err != nil {
			return err
		}
		log := newLogger(cmd.ErrOrStderr(), &s)
		return cleanUp(cmd.Context(), newHandover(*await), log)
	}
	return cmd
}

// cleanUp makes sure that no daemon works, because it would write again what is removed, and waits for the next proxy. Then
// it removes everything.
func cleanUp(ctx context.Context, next *handover, log *slog.Logger) (err error) {
	claim, err := claimNode(ctx, cleanupPatience, log)
	if err != nil {
		return fmt.Errorf("clean up: %w; nothing was removed", err)
	}
	defer func() { err = errors.Join(err, claim.Close()) }()
	if err := next.await(ctx, log); err != nil {
		return err
	}
	return removeAll(log)
}

// removeAll restores the sysctl route_localnet, removes everything in IPVS, restores its sysctls, and removes both tables. In
// this order, the guards in the tables outlive what they protect.
func removeAll(log *slog.Logger) error {
	if err := retireLoopback(log); err != nil {
		return fmt.Errorf("clean up: %w; nothing else was removed", err)
	}
	successor, err := handOver(log)
	if err != nil {
		return err
	}
	if err := cleanUpIPVS(log); err != nil {
		return err
	}
	if err := restoreSysctls(successor, log); err != nil {
		return fmt.Errorf("clean up: %w; no table was removed", err)
	}
	if err := nft.Cleanup(nft.Options{}); err != nil {
		return fmt.Errorf("clean up: %w; no table was removed", err)
	}
	log.Info("removed", "tables", "ip verdict, ip6 verdict")
	return nil
}

// initHost sets the sysctls and loads the modules that the daemon needs.
func initHost(s *config.Settings, log *slog.Logger) error {
	new(nodesetup.Host).Apply(&s.Node, log)
	if err := setLoopback(s, log); err != nil {
		return err
	}
	engine, _, err := openIPVS(s, log)
	if engine != nil {
		engine.Close()
	}
	return err
}

// run connects the parts of the daemon and runs them until the context ends or a part returns an error.
func run(ctx context.Context, c *commandLine, takeOver bool, log *slog.Logger) (err error) {
	s, b := &c.settings, thisBuild()
	log.Info("starting", "version", b.version, "revision", b.revision, "node", s.NodeName, "backend", string(s.Backend))
	registry := prometheus.NewRegistry()
	if err := restclient.Register(registry); err != nil { // before the first client
		return err
	}
	store := state.NewStore()
	client, err := newClient(s, store.AddServer)
	if err != nil {
		return err
	}
	claim, err := claimNode(ctx, claimPatience, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, claim.Close()) }()
	guard := newGuardKeeper(log)
	if err := guard.set(s); err != nil {
		return err
	}
	if takeOver {
		adoptVirtualServers(s, log)
	}
	k, err := openKernel(s, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.close()) }()
	new(nodesetup.Host).Apply(&s.Node, log)
	notes, observers, err := openObservers(s, registry, store, k, log)
	if err != nil {
		return err
	}
	var observer proxier.Observer = observers
	if takeOver {
		observer = newSuccessor(observers, log)
	}
	interference, reconfigured := make(chan dataplane.Interference, 64), make(chan *config.Settings)
	health, err := newHealth(s, store, k, observers, log)
	if err != nil {
		return err
	}
	loop := proxier.New(proxier.Options{
		Settings: s, Store: store, Dataplane: k.dataplane(), Flows: k.flows, Former: formerFrontends(k.engine, log), Adopted: adoptedFrontends(k.balancer),
		Primary: source.PrimaryAddresses, APIServers: apiServers(s), Observer: observer, Log: log,
		NoIPv6: !slices.Contains(k.families, nft.IPv6), Interference: interference, Reconfigured: reconfigured,
		Health: health,
	})
	group, ctx := errgroup.WithContext(ctx)
	daemon := observers.daemon(store, health)
	if err := observers.listen(ctx, group, daemon); err != nil {
		return err
	}
	observers.answerStatus(ctx, group, daemon)
	startSources(ctx, group, s, client, store, readers{observers.metrics.Readable, observers.proxy.SetMissing, keptFromKernel(s.NodeName)}, log)
	group.Go(func() error { return follow(ctx, c, goLive(ctx, observers, guard, reconfigured, log), log) })
	group.Go(func() error { return k.watch(ctx, guard, interference, log) })
	for _, run := range []func(context.Context) error{notes.run, loop.Run, health.Run, guard.run, newRoomWatch(procRoot, log).run} {
		group.Go(func() error { return run(ctx) })
	}
	err = group.Wait()
	log.Info("stopped; the rules stay in the kernel")
	return err
}

// openObservers makes what the loop reports to.
func openObservers(s *config.Settings, registry *prometheus.Registry, store *state.Store, k *kernelSide, log *slog.Logger) (*events, *observers, error) {
	client, err := newEventClient(s)
	if err != nil {
		return nil, nil, err
	}
	notes := newEvents(client, s.NodeName, store, log)
	o, err := newObservers(s, registry, notes, store.ChangeCounts, log)
	if err != nil {
		return nil, nil, err
	}
	o.kernel = newKernelCheck(k.families, log)
	return notes, o, o.scrapeKernel(k)
}

func kernelHasIPv6() bool {
	_, err := os.Stat("/proc/net/if_inet6")
	return !errors.Is(err, fs.ErrNotExist)
}

// kernelSide holds the parts of the proxy that talk to the kernel.
type kernelSide struct {
	families   []nft.Family
	engine     *nft.Engine
	watcher    *nft.Watcher
	suspects   *nft.SuspectReader   // nil: nobody looks for endpoints that do not answer
	forgetter  *conntrack.Forgetter // nil: nobody asks endpoints
	flows      *conntrack.Cleaner
	balancer   *ipvsctl.Engine // nil if IPVS has nothing to do
	scheduling dataplane.Scheduling
}

func openKernel(s *config.Settings, log *slog.Logger) (k *kernelSide, err error) {
	k = &kernelSide{families: kernelFamilies(kernelHasIPv6(), probeIPv6, log)}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.close())
		}
	}()
	if k.engine, err = nft.Open(nft.Options{Families: k.families, Owner: s.TableOwner == config.TableOwnerAuto}); err != nil {
		newKernelCheck(k.families, log).explain()
		return k, fmt.Errorf("open the nft engine: %w", err)
	}
	mendRules(k.engine, log)
	if s.TableOwner == config.TableOwnerAuto && !k.engine.CanOwn() {
		log.Info("the kernel cannot keep other processes from changing the tables; Verdict undoes what they change",
			"needs", "Linux 6.9 or newer")
	}
	if k.watcher, err = k.engine.Watch(); err != nil {
		return k, err
	}
	if k.flows, err = conntrack.Open(conntrack.Options{}); err != nil {
		return k, fmt.Errorf("open connection tracking: %w", err)
	}
	k.balancer, k.scheduling, err = openIPVS(s, log)
	return k, err
}

// mendRules undoes changes of the rules before the API server is asked, because they may keep its answers away.
func mendRules(engine *nft.Engine, log *slog.Logger) {
	chains, err := engine.Mend()
	if err != nil {
		log.Error("cannot find out whether the rules of an earlier process are as they should be; the first pass looks again", "error", err)
	} else if len(chains) > 0 {
		log.Warn("another process changed rules while Verdict did not run; the change is undone", "chains", strings.Join(chains, ", "))
	}
}

func (k *kernelSide) dataplane() *dataplane.Dataplane {
	o := dataplane.Options{Ruleset: k.engine, Scheduling: k.scheduling}
	if k.balancer != nil {
		o.Balancer = k.balancer
	}
	return dataplane.New(o)
}

// close closes the parts that are open. The rules stay in the kernel.
func (k *kernelSide) close() error {
	var errs []error
	if k.balancer != nil {
		k.balancer.Close()
	}
	if k.flows != nil {
		errs = append(errs, k.flows.Close())
	}
	if k.forgetter != nil {
		errs = append(errs, k.forgetter.Close())
	}
	if k.suspects != nil {
		errs = append(errs, k.suspects.Close())
	}
	if k.watcher != nil {
		errs = append(errs, k.watcher.Close())
	}
	if k.engine != nil {
		errs = append(errs, k.engine.Close())
	}
	return errors.Join(errs...)
}
