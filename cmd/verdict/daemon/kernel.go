package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/verdict-proxy/verdict/cmd/verdict/ipvs"
	"github.com/verdict-proxy/verdict/cmd/verdict/kernelmetrics"
	"github.com/verdict-proxy/verdict/cmd/verdict/loopback"
	"github.com/verdict-proxy/verdict/cmd/verdict/preflight"
	"github.com/verdict-proxy/verdict/cmd/verdict/socket"
	"github.com/verdict-proxy/verdict/config"
	"github.com/verdict-proxy/verdict/ipvsctl"
	"github.com/verdict-proxy/verdict/nft"
	"github.com/verdict-proxy/verdict/nft/contents"
	"github.com/verdict-proxy/verdict/nft/inspect"
	"github.com/verdict-proxy/verdict/nft/kernel"
	"github.com/verdict-proxy/verdict/nft/program"
	"github.com/verdict-proxy/verdict/proxier/addresses"
	"github.com/verdict-proxy/verdict/proxier/conntrack"
	"github.com/verdict-proxy/verdict/proxier/dataplane"
	"github.com/verdict-proxy/verdict/proxier/state"
)

// kernelSide holds the parts of the proxy that talk to the kernel.
type kernelSide struct {
	families   []program.Family
	engine     *nft.Engine
	watcher    *kernel.Watcher
	flows      *conntrack.Cleaner
	balancer   *ipvsctl.Engine // nil if IPVS has nothing to do
	scheduling dataplane.Scheduling
	addresses  *addresses.Engine
	slowPath   func() string
	plane      *dataplane.Dataplane
	open       []func() error // closes what is open
}

func openKernel(s *config.Settings, log *slog.Logger) (k *kernelSide, err error) {
	probe := func() ([]kernel.Feature, error) {
		return kernel.Probe(kernel.Options{Families: []program.Family{program.IPv6}})
	}
	k = &kernelSide{families: preflight.Families(preflight.HasIPv6(), probe, log)}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.close())
		}
	}()
	if k.engine, err = nft.Open(nft.Options{Families: k.families, Owner: s.TableOwner == config.TableOwnerAuto, Piece: nft.Piece}); err != nil {
		preflight.ExplainRefusal(k.families, log)()
		return k, fmt.Errorf("open the nft engine: %w", err)
	}
	k.open = append(k.open, k.engine.Close)
	mendRules(k.engine, log)
	if s.TableOwner == config.TableOwnerAuto && !k.engine.CanOwn() {
		log.Info("the kernel cannot keep other processes from changing the tables; Verdict undoes what they change",
			"needs", "Linux 6.9 or newer")
	}
	if k.watcher, err = k.engine.Watch(); err != nil {
		return k, err
	}
	k.open = append(k.open, func() error { return k.watcher.Close() }) // rewatch replaces it
	if k.flows, err = conntrack.Open(conntrack.Options{}); err != nil {
		return k, fmt.Errorf("open connection tracking: %w", err)
	}
	k.open = append(k.open, k.flows.Close)
	k.slowPath = sync.OnceValue(func() string { return kernel.WhySlow(kernel.Options{Families: k.families}) })
	k.addresses = addresses.New(s.ManageAddresses, log)
	if k.balancer, k.scheduling, err = ipvs.Open(s, log); k.balancer != nil {
		k.open = append(k.open, func() error { k.balancer.Close(); return nil })
	}
	return k, err
}

// fastPath returns whether connections take the fast path, as far as the settings and the kernel decide it.
func (o *observers) fastPath(k *kernelSide) (f socket.FastPath) {
	if s := o.inForce.Load(); s.FastPath == config.FastPathServices {
		f.After, f.NoEffect, f.BridgesStay = s.FastPathAfter, k.slowPath(), kernel.BridgesStay()
	}
	return f
}

// onRules returns the same with the ports of a Service that stay on the rules; "": of all Services.
func (o *observers) onRules(k *kernelSide, service string) socket.FastPath {
	f := o.fastPath(k)
	k.plane.EachOnRules(func(id contents.PortID, why string) {
		if f.After > 0 && (service == "" || strings.HasPrefix(id.Name, service+":")) {
			f.OnRules = append(f.OnRules, socket.OnRules{Port: id.Name, Family: id.Family.Version(), Why: why})
		}
	})
	return f
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

func (k *kernelSide) dataplane(store *state.Store) *dataplane.Dataplane {
	o := dataplane.Options{Ruleset: k.engine, Scheduling: k.scheduling, Addresses: k.addresses, Devices: store.Devices, FollowDevices: k.engine.FollowDevices}
	if k.balancer != nil {
		o.Balancer = k.balancer
	}
	k.plane = dataplane.New(o)
	return k.plane
}

// empty reports whether the kernel has nothing of an earlier process.
func (k *kernelSide) empty() bool {
	return k.engine.Empty() && (k.balancer == nil || k.balancer.Empty())
}

// close closes the parts that are open. The rules stay in the kernel.
func (k *kernelSide) close() error {
	var errs []error
	for _, end := range slices.Backward(k.open) {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// formerFrontends lists the frontends of the previous process that have UDP flows. It must run before the first pass,
// which replaces the tables. On an error it logs a warning and returns nothing: flows of frontends that are gone then
// stay until their clients stop sending.
func formerFrontends(engine *nft.Engine, log *slog.Logger) []conntrack.Frontend {
	list, err := conntrack.Former(conntrack.Options{}, func(f conntrack.Frontend) (bool, error) {
		return engine.Inherited(f.Family, unix.IPPROTO_UDP, f.Addr, f.Port)
	})
	if err != nil {
		log.Warn("cannot find UDP flows of Services that were deleted while no proxy ran; these flows stay until they time out", "error", err)
	}
	return list
}

// adoptedFrontends lists the UDP frontends whose flows the virtual servers of an earlier proxy carry on. A virtual server
// at an address of this node is that of a node port, which has no address of its own.
func adoptedFrontends(engine *ipvsctl.Engine) (list []conntrack.Frontend) {
	if engine == nil {
		return nil
	}
	for _, key := range engine.Adopted() {
		if key.Protocol == ipvsctl.UDP {
			f := conntrack.Frontend{Addr: key.Addr, Port: key.Port, Family: state.FamilyOf(key.Addr)}
			list = append(list, f, conntrack.Frontend{Port: f.Port, Family: f.Family})
		}
	}
	return list
}

// scrapeKernel adds the metrics that are read from the kernel when someone asks for them.
func (o *observers) scrapeKernel(k *kernelSide, p *passing) error {
	options := kernelmetrics.Options{
		Elements: k.engine.Elements,
		Affinity: func() ([]inspect.AffinityEntries, error) { return inspect.ReadAffinity(kernel.Options{}) },
		Traffic: func(within time.Duration) ([]inspect.FrontendStatus, error) {
			return inspect.Counters(kernel.Options{}, within, nil)
		},
		Room:    func() (conntrack.Room, error) { return conntrack.ReadRoom(procRoot) },
		Passing: p.latest, FastPath: func() socket.FastPath { return o.fastPath(k) },
		Most: o.settings.CountedFrontends, Log: o.log, Now: time.Now,
	}
	if k.balancer != nil {
		options.Servers = func(within time.Duration) ([]ipvsctl.Status, error) {
			return ipvsctl.List(ipvsctl.Options{}, within)
		}
	}
	if err := o.registry.Register(kernelmetrics.New(options)); err != nil {
		return fmt.Errorf("register metrics of the kernel: %w", err)
	}
	return nil
}

// Pauses before the events of nf_tables are read from a new socket: each is twice as long as the last one, until an event
// has come.
const (
	firstRewatch = 50 * time.Millisecond
	lastRewatch  = 10 * time.Second
)

// watch reports to the loop what other processes do to the tables, and to the keeper what they do to the guard of
// 127.0.0.0/8, until the context ends. The kernel queues events while the loop is busy. When they cannot be read, some are
// lost, and the loop looks at everything.
func (k *kernelSide) watch(ctx context.Context, guard *loopback.Keeper, tell chan<- dataplane.Interference, log *slog.Logger) error {
	pause := firstRewatch
	for ctx.Err() == nil {
		i, err := k.watcher.Next(ctx)
		switch {
		case err == nil:
			pause = firstRewatch
		case ctx.Err() == nil:
			log.Error("cannot read what other processes do to the tables; a new socket is opened, and everything is looked at",
				"error", err, "after", pause)
			k.rewatch(ctx, pause, log)
			pause = min(2*pause, lastRewatch)
			i = dataplane.Interference{Lost: true}
		}
		if i.Guard || i.Lost {
			guard.Changed(i.Process)
		}
		if i.Empty() {
			continue
		}
		select {
		case tell <- i:
		case <-ctx.Done():
		}
	}
	return nil
}

// rewatch replaces the watcher after a pause. It tries until it succeeds or the context ends.
func (k *kernelSide) rewatch(ctx context.Context, pause time.Duration, log *slog.Logger) {
	for wait(ctx, pause) {
		w, err := k.engine.Watch()
		if err == nil {
			_ = k.watcher.Close() // its error does not matter: nobody reads from it any more
			k.watcher = w
			return
		}
		pause = min(2*pause, lastRewatch)
		log.Error("cannot watch the tables: what other processes do is found by the slow comparison only; trying again",
			"error", err, "after", pause)
	}
}

// wait waits for a time. It reports whether the time is over, and not the context.
func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
